"""What Tab completes. Hydra has the scripts for shells; its answers lack lists and enumerations."""

from __future__ import annotations

import contextlib
import enum
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from sweep import schema

FLAGS = {"-sc", "--shell-completion"}
PROGRAM = "trainer-sweep"  # Hydra's scripts complete a program by its name, and no `python -m`
HERE = {"arch": "llama", "layout": "single"}  # settings have names only where these are chosen


def answer(arguments: Sequence[str], ask: Callable[[], object]) -> None:
    """`-sc install=bash` prints Hydra's script; `query=bash` what may stand at COMP_LINE's end.

    `ask` makes Hydra print what it knows.
    """
    sys.argv[0] = PROGRAM
    if any(word.startswith("query=") for word in arguments):
        print("\n".join(_words(ask)))
    else:
        ask()


def _words(ask: Callable[[], object]) -> list[str]:
    """What may stand in the last word's place; after a comma, what may follow it."""
    line = os.environ.get("COMP_LINE", "")
    rest, _, last = line.rpartition(" ")
    key, equals, values = last.rpartition("=")
    before, comma, begun = values.rpartition(",")
    # Hydra completes choices, but no value that is begun
    os.environ["COMP_LINE"] = f"{_chosen(rest, key)} {key}{equals}{'' if equals else begun}"
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        ask()
    offered = [value for word in said.getvalue().split() for value in _values(word)]
    if not equals:
        return offered
    new = [name.partition("=")[2] for name in offered]
    return [
        f"{key}={before}{comma}{name}"
        for name in new
        if name.startswith(begun) and name not in before.split(",")
    ]


def _chosen(line: str, asked: str) -> str:
    """The line, with an arch and a layout where it has none and is not asked for one."""
    said = {word.partition("=")[0] for word in line.split()} | {asked}
    added = [f"{name}={value}" for name, value in HERE.items() if name not in said]
    return " ".join([line, *added])


def _values(word: str) -> Iterator[str]:
    """Hydra offers the value that a setting has: for enumerations and switches, all of them."""
    key, _, value = word.partition("=")
    kind, _, member = value.partition(".")
    known: Mapping[str, object] = vars(schema)
    choices = known.get(kind)
    if isinstance(choices, enum.EnumMeta) and member:
        yield from (f"{key}={name}" for name in choices.__members__)
    elif value in ("true", "false"):
        yield from (f"{key}=true", f"{key}=false")
    else:
        yield word
