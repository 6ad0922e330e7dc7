"""A resumed run continues the one it was saved from: the same run's own later steps.

Batches, learning rate, random streams and buffers must be equal; losses and gradient norms agree
within a threshold. With Adam's moments lost the first resumed step can still agree, so every later
step counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sweep import thresholds
from sweep.checks.base import Context, Finding, Outcome
from sweep.facts import Facts, LaunchFacts, Step

Pair = tuple[Step, Step]  # the uninterrupted run's, and the resumed one's
EQUAL: tuple[tuple[str, Callable[[Step], object]], ...] = (
    ("learning rate", lambda step: step.lr),
    ("batch", lambda step: step.batch_digests),
    ("random stream", lambda step: step.rng_digests),
    ("untrained buffers", lambda step: step.buffers_digest),
)
FIGURES: tuple[tuple[str, Callable[[Step], float]], ...] = (
    ("loss", lambda step: step.loss),
    ("grad_norm", lambda step: step.grad_norm),
)


@dataclass(frozen=True)
class Delta:
    """How far a figure of the resumed run is from the uninterrupted one's, over the steps."""

    name: str
    largest: float
    mean: float
    at: Pair


def check(facts: Facts, _context: Context) -> Finding | None:
    """Compare each resumed launch with the first; None where the case does not resume."""
    asked = facts.asked.get("resume_at")
    if not asked:
        return None
    if len(facts.launches) <= len(asked):
        message = f"{len(facts.launches)} of {len(asked) + 1} launches ran"
        return _finding(Outcome.INCONCLUSIVE, message)
    whole, *resumed = facts.launches
    findings = [_compared(whole, one, facts) for one in resumed]
    worst = next((one for one in findings if one.outcome is not Outcome.PASS), findings[0])
    names = {name for one in findings for name in one.metrics}
    largest = {name: max(one.metrics.get(name, 0.0) for one in findings) for name in names}
    return worst.model_copy(update={"metrics": largest})


def _compared(whole: LaunchFacts, resumed: LaunchFacts, facts: Facts) -> Finding:
    pairs = _pairs(whole, resumed)
    if len(pairs) < 2:
        message = f"{len(pairs)} steps to compare after the resume; at least 2 are needed"
        return _finding(Outcome.INCONCLUSIVE, message, folder=resumed.directory)
    deltas = [_delta(name, figure, pairs) for name, figure in FIGURES]
    metrics = {f"resume/{delta.name}_delta_max": delta.largest for delta in deltas}
    problem = _unequal(pairs) or _too_far(deltas, facts)
    outcome = Outcome.FAIL if problem else Outcome.PASS
    return _finding(outcome, problem, metrics, resumed.directory if problem else "")


def _pairs(whole: LaunchFacts, resumed: LaunchFacts) -> list[Pair]:
    later = {step.step: step for step in whole.metrics.steps}
    return [(later[step.step], step) for step in resumed.metrics.steps if step.step in later]


def _unequal(pairs: list[Pair]) -> str:
    for whole, resumed in pairs:
        for name, value in EQUAL:
            if value(whole) != value(resumed):
                return (
                    f"step {whole.step}: the {name} is {value(resumed)} resumed, "
                    f"{value(whole)} in the uninterrupted run"
                )
    return ""


def _delta(name: str, figure: Callable[[Step], float], pairs: list[Pair]) -> Delta:
    # a comparison with NaN must count as far, not as near
    deltas = [_distance(figure(whole), figure(resumed)) for whole, resumed in pairs]
    largest = max(deltas)
    return Delta(name, largest, sum(deltas) / len(deltas), pairs[deltas.index(largest)])


def _distance(first: float, second: float) -> float:
    distance = abs(first - second)
    return distance if distance == distance else float("inf")


def _too_far(deltas: list[Delta], facts: Facts) -> str:
    for delta in deltas:
        limit = thresholds.of("resume", delta.name, facts.case.device, facts.case.dtype)
        if delta.largest <= limit.value:
            continue
        whole, resumed = (getattr(step, delta.name) for step in delta.at)
        return (
            f"step {delta.at[0].step}: {delta.name} is {resumed:.6g} resumed, {whole:.6g} in the "
            f"uninterrupted run: off by {delta.largest:.2e} at most, {delta.mean:.2e} on average; "
            f"threshold {limit.value:.1e} ({limit.source})"
        )
    return ""


def _finding(
    outcome: Outcome, message: str = "", metrics: dict[str, float] | None = None, folder: str = ""
) -> Finding:
    return Finding(
        check="resume", outcome=outcome, message=message, metrics=metrics or {}, folder=folder
    )
