"""Graph breaks, recompiles and captured graphs of a launch, from the compiler's log.

Two breaks are the same if they have the same reason and line of user code. A place breaks once per
compilation, so every rank, caller and recompile logs it again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from sweep.facts import CompilerFacts, Happening
from sweep.logs.compiler_log import LogEntry, entries
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
    """The compiler's facts from a launch's logs; None if it logged nothing."""
    by_rank = list(_of_ranks(directory / "ranks"))
    ranked = by_rank or list(_of_launcher(directory / "launcher.log"))
    return tally(ranked) if ranked else None


def tally(ranked: Iterable[tuple[str, LogEntry]]) -> CompilerFacts:
    """Count entries, each given with its rank, by identity."""
    ranked = list(ranked)
    refused = {(rank, entry.compile_id) for rank, entry in ranked if _AT_LIMIT.match(entry.text)}
    facts = CompilerFacts()
    breaks: dict[tuple[str, str], Happening] = {}
    recompiles: dict[tuple[str, str], Happening] = {}
    for rank, entry in ranked:
        if _CAPTURED.match(entry.text):
            facts.graphs[rank] = facts.graphs.get(rank, 0) + 1
        elif happening := _recompile(entry):
            if (rank, entry.compile_id) not in refused:
                _count(recompiles, happening, rank)
        elif happening := _break(entry):
            _count(breaks, happening, rank)
    facts.breaks, facts.recompiles = list(breaks.values()), list(recompiles.values())
    return facts


@cache
def relative(file: str) -> str:
    """The path of a source file as it is imported, so that it is the same on every machine.

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
    text = re.sub(r"(?<![\w/])/[\w.+-]+(?:/[\w.+-]+)+", lambda path: relative(path[0]), text)
    text = re.sub(r"(?<![\w.])[su]?\d+(?:\.\d+)?(?!\w)", "N", text)
    return " ".join(text.split())[:REASON_LIMIT]


def _of_ranks(ranks: Path) -> Iterator[tuple[str, LogEntry]]:
    """The entries in torchrun's logs, one folder a rank."""
    for rank, log in logs_in(ranks, "stderr.log", "stdout.log"):
        yield from ((str(rank), entry) for entry in _entries(log))


def _of_launcher(log: Path) -> list[tuple[str, LogEntry]]:
    """The entries of a log that all processes share; one without a rank is named by its PID."""
    logged = list(_entries(log)) if log.is_file() else []
    ranks = {entry.pid: entry.rank for entry in logged if entry.rank is not None}
    pids = list(dict.fromkeys(entry.pid for entry in logged))
    if len(pids) == 1:
        ranks.setdefault(pids[0], "0")
    return [(ranks.get(entry.pid, f"process {entry.pid}"), entry) for entry in logged]


def _entries(log: Path) -> Iterator[LogEntry]:
    with log.open(encoding="utf-8", errors="replace") as lines:
        yield from entries(lines)


def _break(entry: LogEntry) -> Happening | None:
    at_limit = _AT_LIMIT.match(entry.text)
    if at_limit:  # what comes after it runs uncompiled, and is logged nowhere else
        reason = f"hit config.{at_limit['limit']}: the function runs uncompiled from now on"
        return _happening(reason, at_limit)
    if entry.artifact != "graph_breaks" or not entry.text.startswith("Graph break"):
        return None
    stack = list(_STACK_LINE.finditer(entry.text))
    place = _PLACE.search(entry.text.partition("\n")[0]) or (stack[-1] if stack else None)
    if place is None:
        return None
    return _happening(_reason(entry.text), place, stack)


def _reason(text: str) -> str:
    """The kind of the first break, and its explanation.

    torch writes what it was doing at the break before the kind.
    """
    first, _, rest = text.partition("\n")
    reason = rest.removeprefix("Graph Break Reason: ").partition("\nUser code traceback:")[0]
    kind, is_explained, explained = reason.partition("\n  Explanation: ")
    if is_explained:
        kind = kind.partition("\n  Higher Order Operator: ")[0].strip().splitlines()[-1]
        return f"{kind}: {explained.splitlines()[0]}"
    if rest.startswith("Graph Break Reason: "):
        return next((line for line in reason.splitlines() if line.strip()), "no reason given")
    return first.removeprefix("Graph break: ").partition(" in user code at")[0]


def _recompile(entry: LogEntry) -> Happening | None:
    place = _RECOMPILED.match(entry.text) if entry.artifact == "recompiles" else None
    if place is None:
        return None
    guard = _GUARD.search(entry.text)
    reason = guard["guard"].partition("  # ")[0] if guard else "no reason given"
    return _happening(reason, place)


def _happening(reason: str, place: re.Match[str], stack: Iterable[re.Match[str]] = ()) -> Happening:
    where = (place["file"], place["line"])
    names = [call["name"] for call in stack if (call["file"], call["line"]) == where]
    name = names[-1] if names else place.groupdict().get("name", "")
    frame = f"{relative(place['file'])}:{place['line']}"
    return Happening(reason=normalised(reason), frame=frame, function=name)


def _count(counted: dict[tuple[str, str], Happening], happening: Happening, rank: str) -> None:
    kept = counted.setdefault(happening.identity, happening)
    kept.function = kept.function or happening.function
    kept.ranks[rank] = kept.ranks.get(rank, 0) + 1
