"""Runs a trainer's code from another copy of its git repository: `trainer.tree`.

Every path into the repository is led into the copy, and Python finds modules there first. The
case's identity is taken before, so that a case is comparable with itself in another tree.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, is_dataclass, replace
from pathlib import Path
from typing import Any

from sweep import provenance, trainers
from sweep.errors import RequestError
from sweep.schema import Settings

SOURCES = ("", "src")
"""Where a repository keeps its packages, if not in the folder of the trainer's own script."""


def repository(settings: Settings) -> Path | None:
    """The top folder of the git repository that the trainer's code is in; None if it is in none."""
    project = trainers.of(settings).project(settings)
    return None if project is None else provenance.toplevel(project)


def moved(settings: Settings) -> Settings:
    """The settings with the trainer's code in `trainer.tree`; as they are where that is not set.

    Raises RequestError for a tree that is not there, or of another repository.
    """
    conf = settings.trainer
    if conf.tree is None:
        return settings
    tree = Path(conf.tree).resolve()
    project = trainers.of(settings).project(settings)
    if project is not None and _inside(project, tree) is not None:
        return settings  # it was moved before
    top = repository(settings)
    if project is None or top is None:
        raise RequestError(
            f"trainer.tree={conf.tree}: the code of trainer={conf.name} is in no git repository;"
            " trainer.project=FOLDER says where it is"
        )
    within = _inside(project, top) or Path()
    if not (tree / within).is_dir():
        raise RequestError(f"trainer.tree={conf.tree}: it has no folder {within}, as {top} has")
    values = {
        field: _led(value, top, tree)
        for field, value in vars(conf).items()
        if field not in ("tree", "project", "python", "name", "adapter")
    }
    env = values["env"] | {"PYTHONPATH": _python_path(tree, within, values["env"])}
    led = replace(conf, **{**values, "env": env, "project": str(tree / within)})
    return replace(settings, trainer=led)


def _python_path(tree: Path, within: Path, env: dict[str, str]) -> str:
    """The tree's folders of modules, then those that were looked in before."""
    ours = [tree / within, *(tree / name for name in SOURCES)]
    before = env.get("PYTHONPATH") or os.environ.get("PYTHONPATH", "")
    known = [str(folder) for folder in dict.fromkeys(ours) if folder.is_dir()]
    return os.pathsep.join([*known, *filter(None, before.split(os.pathsep))])


def _led(value: Any, top: Path, tree: Path) -> Any:
    """The value with every path into `top` led into `tree`, in lists and mappings too."""
    if isinstance(value, dict):
        return {key: _led(item, top, tree) for key, item in value.items()}
    if isinstance(value, list):
        return [_led(item, top, tree) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        names = asdict(value)
        return replace(value, **{name: _led(getattr(value, name), top, tree) for name in names})
    return _led_text(value, top, tree) if isinstance(value, str) else value


def _led_text(text: str, top: Path, tree: Path) -> str:
    absolute = re.sub(rf"{re.escape(str(top))}(?![\w.-])", lambda _: str(tree), text)
    path = Path(text)
    if absolute != text or not text or path.is_absolute() or not path.exists():
        return absolute
    within = _inside(path, top)
    return text if within is None or str(path) == "." else str(tree / within)


def _inside(path: Path, folder: Path) -> Path | None:
    """The path relative to the folder; None if it is not in it."""
    real, top = path.resolve(), folder.resolve()
    return real.relative_to(top) if real.is_relative_to(top) else None
