"""The commands in the text that our programs print, as their source has them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.sweep.commands import ROOT

PACKAGES = ("sweep", "hydra_plugins", "sft", "hf_sft", "oracle", "tiny_models")
SPELLED = tuple(
    sorted(
        path.parent.name if path.stem == "__main__" else path.stem
        for path in [*(ROOT / "sweep").glob("*.py"), *(ROOT / "sweep").glob("*/__main__.py")]
        if "Usage(" in path.read_text()
    )
)
"""The commands next to `python -m sweep`."""
COMMAND = re.compile(
    r"(?:[A-Z_]+=\S+ )?python -m [\w.]+[^\n;`#]*"
    r"|(?<![\w./])trainer-sweep -sc [^\n;`#]*"
    r"|(?<![\w./])git -C [^\n;`#]*"
    rf"|(?<![\w./-])sweep\.(?:{'|'.join(SPELLED)})\b(?: [a-z]+ [A-Z]+\b)?"
)


def printed() -> dict[tuple[str, str], int]:
    """(file, command) -> line, of every string that is no docstring, or that is shown as help."""
    found: dict[tuple[str, str], int] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for line, command in _in(path):
                found.setdefault((str(path.relative_to(ROOT)), command), line)
    return found


def made() -> set[tuple[str, str]]:
    """(file, function) of everything that spells a command of words that it is given."""
    found = set()
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            nodes = ast.walk(ast.parse(path.read_text()))
            functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
            file = str(path.relative_to(ROOT))
            found |= {(file, one.name) for one in functions if any(map(_spells, ast.walk(one)))}
    return found


def _in(path: Path) -> Iterator[tuple[int, str]]:
    tree = ast.parse(path.read_text())
    docs = _docstrings(tree, shown="__doc__" in path.read_text())
    formatted = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in formatted for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in docs | parts:
            for match in COMMAND.finditer(_text(node)):
                yield node.lineno, match[0].partition(": ")[0].strip()


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    """Of a string; a value that is filled in is `{}`."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    return "".join(_text(one) if isinstance(one, ast.Constant) else "{}" for one in node.values)


def _docstrings(tree: ast.Module, shown: bool) -> set[int]:
    """Of the nodes that are docstrings; a module's is help where the module says so."""
    kinds = ast.FunctionDef | ast.ClassDef
    owners = [node for node in ast.walk(tree) if isinstance(node, kinds | ast.Module)]
    return {
        id(owner.body[0].value)
        for owner in owners
        if owner.body and isinstance(owner.body[0], ast.Expr)
        if not (shown and isinstance(owner, ast.Module))
    }


def _spells(call: ast.AST) -> bool:
    function = call.func if isinstance(call, ast.Call) else None
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return (function.value.id, function.attr) in (("commands", "spelled"), ("shlex", "join"))
    return False
