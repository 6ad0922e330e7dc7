"""A tie is settled: the case runs once more, with the choices of the plainest case replayed.

They are replayed where the scores are closer than rounding can tell apart (`tie` in
conf/thresholds.yaml), so that every step is compared. A choice that falls differently all the same
is none of rounding's.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from sweep.checks import agreement, peers
from sweep.checks.base import Context, Outcome
from sweep.checks.comparison import TIE, Comparison
from sweep.checks.differences import places_apart
from sweep.checks.thresholds import Table
from sweep.facts import Facts


@dataclass(frozen=True)
class Tie:
    """Whose choices to replay, and where."""

    reference: Facts
    below: float


def unsettled(facts: Facts, context: Context) -> Tie | None:
    """What would settle a tie of this case; None where there is none, or nothing to replay."""
    limit = context.limits.configured(agreement.CHECK, TIE, facts.case)
    reference = peers.plainest(facts, context.sweep)
    if limit is None or reference is None or not peers.is_whole(facts) or facts.replays:
        return None
    if not _can_be_settled(facts, reference):
        return None
    compared = agreement.compare(facts, reference, context.limits)
    is_wrong = agreement.judged(compared)[0] is Outcome.FAIL
    return Tie(reference, limit.value) if compared.after and not is_wrong else None


def agreed(facts: Facts, reference: Facts, limits: Table) -> tuple[Comparison, Outcome, str]:
    """Whether two cases agree, at all steps where a tie between them was settled."""
    compared = agreement.compare(facts, reference, limits)
    outcome, message = agreement.judged(compared)
    if outcome is Outcome.FAIL or not compared.after:
        return compared, outcome, message
    settled = _settled(facts, reference, limits)
    if settled is None:
        return compared, *_not_settled(compared, facts, reference, outcome, message)
    said = compared.another_choice()
    if settled.after:
        return settled, Outcome.FAIL, f"{said}; {_no_tie(settled, facts, reference)}"
    outcome, message = agreement.judged(settled)
    told = f"{said}; with the same choices where scores tie"
    return settled, outcome, f"{told}: {message or 'equal at all steps'}"


def _settled(facts: Facts, reference: Facts, limits: Table) -> Comparison | None:
    """The runs of the two that choose alike for longest, of which one at least is a replay."""
    pairs = list(product(_runs(facts), _runs(reference)))[1:]  # the first is neither's
    compared = [Comparison(ours, theirs, reference.case.id, agreement.CHECK, limits)
                for ours, theirs in pairs if ours.steps and theirs.steps]  # fmt: skip
    return max(compared, key=lambda candidate: len(candidate.alike), default=None)


def _runs(facts: Facts) -> list[Facts]:
    """The whole run, and each replay in its place."""
    return [facts.model_copy(update={"launches": [launch]})
            for launch in (*facts.launches[:1], *facts.replays)]  # fmt: skip


def _not_settled(
    compared: Comparison, facts: Facts, reference: Facts, outcome: Outcome, message: str
) -> tuple[Outcome, str]:
    limit = compared.limits.configured(agreement.CHECK, TIE, facts.case)
    if limit is None or not _can_be_settled(facts, reference):
        return outcome, message
    hint = "no replay of the choices tells whether it is a tie; rerun=failed runs the case again"
    return Outcome.INCONCLUSIVE, f"{message}; {hint}"


def _can_be_settled(*both: Facts) -> bool:
    return all(run.launches[0].keeps_choices for run in both)


def _no_tie(settled: Comparison, facts: Facts, reference: Facts) -> str:
    ours, theirs = settled.after[0]
    replayed = next(launch.replays for launch in (*facts.replays, *reference.replays))
    limit = settled.limits.configured(agreement.CHECK, TIE, facts.case)
    bound = f" (scores within {limit.value:g})" if limit else ""
    return (
        f"step {ours.step}: it is no tie: with the choices of {replayed} replayed where they may"
        f" tie{bound}, tokens at {places_apart((ours, theirs))} places still have others"
    )
