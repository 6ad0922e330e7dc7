"""The faults that the built-in trainer can plant, read from its source: importing takes torch."""

from __future__ import annotations

import ast
import difflib
import math
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from sweep.errors import RequestError


def check(text: str) -> None:
    """Raise RequestError unless `text` is name[:strength] of a fault that there is."""
    name, colon, strength = text.partition(":")
    known = faults()
    if name not in known:
        near = difflib.get_close_matches(name, known, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "there is no such fault:"
        raise RequestError(f"fault={text}: {hint} python -m sft.faults lists them")
    if colon and not known[name]:
        raise RequestError(f"fault={text}: {name} has no strength; say fault={name}")
    if colon and not _is_number(strength):
        raise RequestError(f"fault={text}: the strength is a number, as in fault={name}:1")


@cache
def faults() -> dict[str, bool]:
    """Name -> whether it has a strength, of every function under `@fault(...)`."""
    package = find_spec("sft")
    folders = package.submodule_search_locations if package else None
    return {name: has_strength for folder in folders or []
            for path in sorted((Path(folder) / "faults").glob("*.py"))
            for name, has_strength in _in(path)}  # fmt: skip


def _in(path: Path) -> Iterator[tuple[str, bool]]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            for made_by in filter(_is_registration, node.decorator_list):
                yield node.name, "strengths" in ast.unparse(made_by)


def _is_registration(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fault"
    )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
