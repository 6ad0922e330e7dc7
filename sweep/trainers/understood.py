"""What of today's config file the built-in trainer of another commit understands.

Its keys are read from its source, which is not imported. A key that it does not have is left out if
that changes nothing: it has its default, or is about what is written besides. Any other stays, and
is refused by that trainer, as it has to be.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sweep.provenance import ROOT

SOURCE = Path("sft") / "config.py"
EXPORTS = "checkpoint.export_at"
BESIDES = (EXPORTS, "choices.keep")
Keys = dict[str, Any]  # `optim.lr` -> its default; UNKNOWN where that cannot be read
UNKNOWN = object()


def understood(config: dict[str, Any], tree: Path) -> dict[str, Any]:
    """The config without the keys that the trainer in `tree` lacks and does not need."""
    theirs, ours = keys(tree), keys(ROOT)
    if not theirs:
        return config
    return {
        section: _kept(section, values, theirs, ours) if isinstance(values, dict) else values
        for section, values in config.items()
        if not _can_go(section, values, theirs, ours)
    }


def keys(root: Path) -> Keys:
    """Every key of the config file, by section; empty where the source is written otherwise."""
    path = root / SOURCE
    if not path.is_file():
        return {}
    body = ast.parse(path.read_text(encoding="utf-8")).body
    classes = {node.name: dict(_fields(node)) for node in body if isinstance(node, ast.ClassDef)}
    found: Keys = {}
    for name, (kind, default) in classes.get("Config", {}).items():
        inner = classes.get(kind)
        pairs = (
            {name: default}
            if inner is None
            else {f"{name}.{key}": value for key, (_, value) in inner.items()}
        )
        found |= pairs
    return found


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, tuple[str, Any]]]:
    """Name, type and default of a dataclass's fields."""
    for field in node.body:
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            yield field.target.id, (ast.unparse(field.annotation), _default(field.value))


def _default(value: ast.expr | None) -> Any:
    if isinstance(value, ast.Call) and ast.unparse(value) == "field(default_factory=list)":
        return []
    try:
        return UNKNOWN if value is None else ast.literal_eval(value)
    except ValueError:
        return UNKNOWN


def _kept(section: str, values: dict[str, Any], theirs: Keys, ours: Keys) -> dict[str, Any]:
    return {
        key: value
        for key, value in values.items()
        if not _can_go(f"{section}.{key}", value, theirs, ours)
    }


def _can_go(key: str, value: Any, theirs: Keys, ours: Keys) -> bool:
    """Whether they lack the key, or each key of the section, and do without."""
    if isinstance(value, dict):
        is_there = any(name.startswith(f"{key}.") for name in theirs)
        return not is_there and not _kept(key, value, theirs, ours)
    is_default = key in ours and ours[key] == value
    return key not in theirs and (is_default or key in BESIDES)
