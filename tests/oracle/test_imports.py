"""The oracle is an opinion of its own: it shares no code with what it is an opinion on."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import oracle

ALLOWED = {
    "oracle",
    "sweep_taps",
    "torch",
    "transformers",
    "safetensors",
    "jinja2",
    *sys.stdlib_module_names,
}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import could lead anywhere"
            yield str(node.module)


def test_the_oracle_imports_neither_the_trainers_nor_the_sweep() -> None:
    sources = list(Path(str(oracle.__file__)).parent.rglob("*.py"))
    names = {name.partition(".")[0] for path in sources for name in imported(path)}
    assert {"torch", "transformers"} <= names <= ALLOWED


def test_the_taps_import_torch_only() -> None:
    import sweep_taps

    for path in Path(str(sweep_taps.__file__)).parent.rglob("*.py"):
        # run as a script it is for trainers that are built on transformers
        more = {"transformers"} if path.name == "__main__.py" else set()
        names = {name.partition(".")[0] for name in imported(path)}
        assert names <= {"sweep_taps", "torch", *more, *sys.stdlib_module_names}, path
