"""Graph breaks, recompiles and captured graphs of a launch, from the compiler's log.

A break is the same as another if its reason and the user's line of code are. One place breaks once
a compilation, so it is logged again by every rank, every caller and every recompile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sweep.facts import CompilerFacts, Happening
from sweep.logs.compiler_log import Record, records
from sweep.logs.root_cause import logs_in

REASON_LIMIT = 300

_PLACE = re.compile(r"in user code at (?P<file>.+):(?P<line>\d+)$", re.MULTILINE)
_STACK_LINE = re.compile(r'^\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)$', re.M)
_RECOMPILED = re.compile(r"Recompiling function (?P<name>.+) in (?P<file>.+):(?P<line>\d+)")
_GUARD = re.compile(r"^\s*- [-!\d/_]+: (?P<guard>.+)$", re.MULTILINE)
_AT_LIMIT = re.compile(
    r"torch\._dynamo hit config\.(?P<limit>\w+) .*\n"
    r"\s*function: '(?P<name>.+)' \((?P<file>.+):(?P<line>\d+)\)"
)
_CAPTURED = re.compile(r"Step \d+: calling compiler function ")
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3\.\d+/(?!site-|dist-)")


def read(directory: Path) -> CompilerFacts | None:
    """What the logs of a launch say; None if the compiler wrote nothing into them."""
    by_rank = list(_of_ranks(directory / "ranks"))
    found = by_rank or list(_of_launcher(directory / "launcher.log"))
    return tally(found) if found else None


def tally(found: Iterable[tuple[str, Record]]) -> CompilerFacts:
    """Count records, each given with its rank, by identity."""
    found = list(found)
    refused = {(rank, one.compile_id) for rank, one in found if _AT_LIMIT.match(one.text)}
    facts = CompilerFacts()
    breaks: dict[tuple[str, str], Happening] = {}
    recompiles: dict[tuple[str, str], Happening] = {}
    for rank, record in found:
        if _CAPTURED.match(record.text):
            facts.graphs[rank] = facts.graphs.get(rank, 0) + 1
        elif one := _recompile(record):
            if (rank, record.compile_id) not in refused:
                _count(recompiles, one, rank)
        elif one := _break(record):
            _count(breaks, one, rank)
    facts.breaks, facts.recompiles = list(breaks.values()), list(recompiles.values())
    return facts


@cache
def relative(file: str) -> str:
    """A source file as it would be imported, so that it is the same on every machine.

    Relative to site-packages or the standard library, else to where its topmost package lies.
    """
    installed = _PACKAGES.sub("", file)
    if installed != file or not file.startswith("/"):
        return installed
    path = Path(file)
    top = path.parent
    while (top / "__init__.py").is_file():
        top = top.parent
    return path.relative_to(top).as_posix()


def normalised(text: str) -> str:
    """A reason on one line, without what differs from run to run: addresses, numbers, folders."""
    text = re.sub(r"\b0x[0-9a-fA-F]+", "0x", text)
    text = re.sub(r"(?<![\w/])/[\w.+-]+(?:/[\w.+-]+)+", lambda found: relative(found[0]), text)
    text = re.sub(r"(?<![\w.])[su]?\d+(?:\.\d+)?(?!\w)", "N", text)
    return " ".join(text.split())[:REASON_LIMIT]


def _of_ranks(ranks: Path) -> Iterator[tuple[str, Record]]:
    """The records in torchrun's logs, one folder a rank."""
    for rank, log in logs_in(ranks, "stderr.log", "stdout.log"):
        yield from ((str(rank), record) for record in _records(log))


def _of_launcher(log: Path) -> list[tuple[str, Record]]:
    """The records where all processes share a log; one without a rank goes by its number."""
    found = list(_records(log)) if log.is_file() else []
    ranks = {record.pid: record.rank for record in found if record.rank is not None}
    pids = list(dict.fromkeys(record.pid for record in found))
    if len(pids) == 1:
        ranks.setdefault(pids[0], "0")
    return [(ranks.get(record.pid, f"process {record.pid}"), record) for record in found]


def _records(log: Path) -> Iterator[Record]:
    with log.open(encoding="utf-8", errors="replace") as lines:
        yield from records(lines)


def _break(record: Record) -> Happening | None:
    at_limit = _AT_LIMIT.match(record.text)
    if at_limit:  # what comes after it runs uncompiled, and is logged nowhere else
        reason = f"hit config.{at_limit['limit']}: the function runs uncompiled from now on"
        return _happening(reason, at_limit)
    if record.artifact != "graph_breaks" or not record.text.startswith("Graph break"):
        return None
    stack = list(_STACK_LINE.finditer(record.text))
    place = _PLACE.search(record.text.partition("\n")[0]) or (stack[-1] if stack else None)
    if place is None:
        return None
    return _happening(_reason(record.text), place, stack)


def _reason(text: str) -> str:
    """The kind of break and what explains it, of the break that came first.

    torch puts what it was doing when the break occurred before the kind.
    """
    first, _, rest = text.partition("\n")
    said = rest.removeprefix("Graph Break Reason: ").partition("\nUser code traceback:")[0]
    kind, found, explained = said.partition("\n  Explanation: ")
    if found:
        kind = kind.partition("\n  Higher Order Operator: ")[0].strip().splitlines()[-1]
        return f"{kind}: {explained.splitlines()[0]}"
    if rest.startswith("Graph Break Reason: "):
        return next((line for line in said.splitlines() if line.strip()), "no reason given")
    return first.removeprefix("Graph break: ").partition(" in user code at")[0]


def _recompile(record: Record) -> Happening | None:
    found = _RECOMPILED.match(record.text) if record.artifact == "recompiles" else None
    if found is None:
        return None
    guard = _GUARD.search(record.text)
    reason = guard["guard"].partition("  # ")[0] if guard else "no reason given"
    return _happening(reason, found)


def _happening(reason: str, place: re.Match[str], stack: Iterable[re.Match[str]] = ()) -> Happening:
    where = (place["file"], place["line"])
    names = [one["name"] for one in stack if (one["file"], one["line"]) == where]
    name = names[-1] if names else place.groupdict().get("name", "")
    frame = f"{relative(place['file'])}:{place['line']}"
    return Happening(reason=normalised(reason), frame=frame, function=name)


def _count(counted: dict[tuple[str, str], Happening], one: Happening, rank: str) -> None:
    kept = counted.setdefault(one.identity, one)
    kept.function = kept.function or one.function
    kept.ranks[rank] = kept.ranks.get(rank, 0) + 1
