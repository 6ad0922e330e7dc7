"""How a trainer is described; each adapter in sweep/trainers adds its own keys."""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib.metadata import entry_points

from omegaconf import MISSING

from sweep.errors import RequestError


@dataclass
class TrainerConf:
    """What every trainer has; an adapter's subclass adds its own keys, and so registers it."""

    name: str = MISSING
    adapter: str = MISSING  # the module of sweep/trainers that translates for it
    env: dict[str, str] = field(default_factory=dict)  # added to the environment of its processes
    project: str | None = None  # the folder of its code, whose git commit is recorded
    tree: str | None = None  # a copy of its git repository that its code is run from instead
    python: str | None = None  # an interpreter that has what it imports; our own otherwise
    not_shown: list[str] = field(default_factory=list)  # figures it has none of, as params_moved

    def __init_subclass__(cls) -> None:
        """Register the subclass under its adapter's name; raises TypeError without a new one."""
        name = vars(cls).get("adapter")
        other = _REGISTERED.get(str(name), cls)
        if name is None or other.__module__ != cls.__module__:
            raise TypeError(f"{cls.__module__}.{cls.__name__}: give `adapter` a name of its own")
        _REGISTERED[name] = cls


_REGISTERED: dict[str, type[TrainerConf]] = {}
ENTRY_POINTS = "trainer_sweep.trainers"  # other distributions' adapters, one module each


@cache
def trainer_confs() -> dict[str, type[TrainerConf]]:
    """Adapter name -> its configuration: of all modules in sweep/trainers, and entry points.

    Raises RequestError for an entry point that cannot be loaded.
    """
    package = importlib.import_module("sweep.trainers")
    for module in pkgutil.iter_modules(package.__path__, "sweep.trainers."):
        importlib.import_module(module.name)
    for entry_point in entry_points(group=ENTRY_POINTS):
        try:
            entry_point.load()
        except Exception as error:
            where = f"{entry_point.group}: {entry_point.name} = {entry_point.value}"
            raise RequestError(
                f"{where} cannot be loaded: {type(error).__name__}: {error}; repair or uninstall"
                f" {entry_point.dist.name if entry_point.dist else 'its distribution'}"
            ) from error
    return dict(sorted(_REGISTERED.items()))


class MetricsFormat(Enum):
    """What a trainer writes its figures as."""

    jsonl = "jsonl"
    csv = "csv"
    tensorboard = "tensorboard"
    log = "log"


@dataclass
class MetricsConf:
    """Where a trainer's figures are, and what it calls them (docs/trainers.md)."""

    format: MetricsFormat = MetricsFormat.jsonl
    path: str | None = None  # in the launch's folder, * allowed; by default metrics.jsonl, ...
    fields: dict[str, str] = field(default_factory=dict)  # our name -> its name (a.b: b inside a)
    pattern: str | None = None  # format=log: a regular expression with the groups step, loss, ...
    merge: str | None = None  # format=jsonl: lines of one step are one, if one has this figure
    first_step: int = 1  # the number it gives to its first step


@dataclass
class ResumeConf:
    """What the second launch of a case that resumes has more, or otherwise."""

    checkpoint: str = "{output_dir}/checkpoint"  # what the first launch saved: {resume_from}
    argv: list[str] = field(default_factory=list)  # words added to the command
    files: dict[str, str] = field(default_factory=dict)  # added, or instead of those of that name
    env: dict[str, str] = field(default_factory=dict)
