"""The compiler broke no graph where it did not before, by its own log.

Zero breaks of zero graphs prove nothing, so a case in which nothing was compiled is inconclusive.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweep import known_breaks
from sweep.checks.base import Context, Finding, Outcome
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.graph_breaks import Happening
from sweep.known_breaks import KnownBreak

NAMED = 3  # breaks that a message names one by one


def check(facts: Facts, _context: Context) -> Finding | None:
    """Fail on a break that is not known; None where nothing was to be compiled."""
    if not facts.asked.get("compile"):
        return None
    found = breaks_of(facts)
    metrics = {"graph_breaks/total": float(len(found)), "compile/recompiles": _recompiles(facts)}
    try:
        known = known_breaks.of_case(facts.case.id)
    except RequestError as error:
        return _finding(Outcome.INCONCLUSIVE, str(error), metrics)
    new = [one for one in found if not any(entry.covers(one) for entry in known)]
    metrics["graph_breaks/new"] = float(len(new))
    if new:
        return _finding(Outcome.FAIL, _said("new", new), metrics, _folder(facts, new[0]))
    unseen = _nothing_compiled(facts)
    if unseen:
        return _finding(Outcome.INCONCLUSIVE, unseen, metrics)
    said = [_said("known", found)] if found else []
    if all(launch.exit_code == 0 for launch in facts.launches):
        said += [_gone(entry) for entry in known if not any(entry.covers(one) for one in found)]
    return _finding(Outcome.PASS, "; ".join(said), metrics)


def breaks_of(facts: Facts) -> list[Happening]:
    """The breaks of all launches; one that occurs in several is one."""
    seen = [one for launch in facts.launches if launch.compiler for one in launch.compiler.breaks]
    return list({one.identity: one for one in reversed(seen)}.values())[::-1]


def _recompiles(facts: Facts) -> float:
    return float(sum(one.compiler.recompile_count for one in facts.launches if one.compiler))


def _nothing_compiled(facts: Facts) -> str:
    """Which launch shows no captured graph; empty if all do."""
    for launch in facts.launches:
        if launch.compiler is None:
            return f"{launch.name}: the compiler wrote nothing into the launch's logs"
        if not launch.compiler.graphs:
            return f"{launch.name}: no graph was captured"
    return "" if facts.launches else "nothing ran"


def _said(kind: str, found: Sequence[Happening]) -> str:
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    named = "; ".join(map(str, found[:NAMED]))
    return f"{len(found)} {kind} graph break{'s' if len(found) > 1 else ''}: {named}{more}"


def _gone(entry: KnownBreak) -> str:
    return f"no longer broken, delete it from conf/{known_breaks.FILE}: {entry}"


def _folder(facts: Facts, found: Happening) -> str:
    """The launch in which the break occurred first."""
    for launch in facts.launches:
        breaks = launch.compiler.breaks if launch.compiler else []
        if found.identity in {one.identity for one in breaks}:
            return launch.directory
    return ""


def _finding(
    outcome: Outcome, message: str, metrics: dict[str, float], folder: str = ""
) -> Finding:
    return Finding(
        check="graph_breaks", outcome=outcome, message=message, metrics=metrics, folder=folder
    )
