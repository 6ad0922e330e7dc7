"""The compiler broke no graph where it did not before, by its own log, and settled down.

Zero breaks of zero graphs prove nothing, so a case in which nothing was compiled is inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from sweep.checks import known_breaks
from sweep.checks.base import Context, Finding, Outcome
from sweep.checks.known_breaks import KnownBreak
from sweep.errors import RequestError
from sweep.facts import Facts, Happening, LaunchFacts, Step

NAMED = 3  # breaks that a message names one by one
SETTLED = 3  # steps after the first, with fewer of which nothing is said of recompiles
TOO_OFTEN = 2  # recompiling in so many steps of their second half is not settling


def check(facts: Facts, context: Context) -> Finding | None:
    """Fail on a break that is not known, or recompiles that go on; None if not compiled."""
    if not facts.asked.get("compile"):
        return None
    breaks = breaks_of(facts)
    metrics = {"graph_breaks/total": float(len(breaks)), "compile/recompiles": _recompiles(facts)}
    try:
        known = known_breaks.of_case(facts.case, context.conf)
    except RequestError as error:
        return _finding(Outcome.INCONCLUSIVE, str(error), metrics)
    new = [
        graph_break
        for graph_break in breaks
        if not any(entry.covers(graph_break) for entry in known)
    ]
    metrics["graph_breaks/new"] = float(len(new))
    if new:
        return _finding(Outcome.FAIL, _said("new graph break", new), metrics, _folder(facts, new))
    unseen = _nothing_compiled(facts)
    if unseen:
        return _finding(Outcome.INCONCLUSIVE, unseen, metrics)
    for launch in facts.launches:
        if _never_settles(launch):
            message = f"{launch.name}: recompiles step after step; {_recompiled(launch)}"
            return _finding(Outcome.FAIL, message, metrics, launch.directory)
    return _finding(Outcome.PASS, "; ".join(_notes(facts, breaks, known)), metrics)


def breaks_of(facts: Facts) -> list[Happening]:
    """The breaks of all launches; one that occurs in several is one."""
    compilers = [launch.compiler for launch in facts.launches if launch.compiler]
    first: dict[tuple[str, str], Happening] = {}
    for graph_break in chain.from_iterable(compiler.breaks for compiler in compilers):
        first.setdefault(graph_break.identity, graph_break)
    return list(first.values())


def _recompiles(facts: Facts) -> float:
    return float(
        sum(launch.compiler.recompile_count for launch in facts.own_launches if launch.compiler)
    )


def _nothing_compiled(facts: Facts) -> str:
    """Which launch shows no captured graph; empty if all do."""
    for launch in facts.launches:
        if launch.compiler is None:
            return f"{launch.name}: the compiler wrote nothing into the launch's logs"
        if not launch.compiler.graphs:
            return f"{launch.name}: no graph was captured"
    return "" if facts.launches else "nothing ran"


def _never_settles(launch: LaunchFacts) -> bool:
    """By the trainer's count of each step, where it reports one: the log knows of no steps."""
    later = launch.metrics.steps[1:]
    second_half = later[len(later) // 2 :]
    return len(later) >= SETTLED and sum(map(_recompiled_in, second_half)) >= TOO_OFTEN


def _recompiled_in(step: Step) -> bool:
    """On any rank; a count that is NaN is not none."""
    counted = step.counters.get("recompiles", 0)
    counts = counted if isinstance(counted, list) else [counted]
    return any(not float(count) <= 0 for count in counts)


def _notes(facts: Facts, breaks: list[Happening], known: list[KnownBreak]) -> Iterator[str]:
    """What is said of a case that passes."""
    if breaks:
        yield _said("known graph break", breaks)
    for launch in facts.launches:
        if launch.compiler and launch.compiler.recompiles:
            yield f"{launch.name}: {_recompiled(launch)}"
    if all(launch.ended_well for launch in facts.launches):
        yield from (_gone(entry) for entry in known if not any(map(entry.covers, breaks)))


def _recompiled(launch: LaunchFacts) -> str:
    return _said("recompile", launch.compiler.recompiles if launch.compiler else [])


def _said(what: str, breaks: Sequence[Happening]) -> str:
    more = f"; and {len(breaks) - NAMED} more" if len(breaks) > NAMED else ""
    named = "; ".join(map(str, breaks[:NAMED]))
    return f"{len(breaks)} {what}{'' if len(breaks) == 1 else 's'}: {named}{more}"


def _gone(entry: KnownBreak) -> str:
    return f"no longer broken, delete {entry.place}: {entry}"


def _folder(facts: Facts, found: Sequence[Happening]) -> str:
    """The launch in which the first of them occurred first."""
    for launch in facts.launches:
        breaks = launch.compiler.breaks if launch.compiler else []
        if found[0].identity in {graph_break.identity for graph_break in breaks}:
            return launch.directory
    return ""


def _finding(
    outcome: Outcome, message: str, metrics: dict[str, float], folder: str = ""
) -> Finding:
    return Finding(
        check="graph_breaks", outcome=outcome, message=message, metrics=metrics, folder=folder
    )
