"""A resumed run continues the one it was saved from: the same run's own later steps.

Batches, learning rate, random streams and buffers must be equal; losses and gradient norms agree
within a threshold. With Adam's moments lost the first resumed step can still agree, so every later
step counts. A resume is a repeat as well: where repeats are exact, gradients are equal to the bit,
and memory that nobody wrote shows in them while losses still round to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest

from sweep.checks import thresholds
from sweep.checks.base import Context, Finding, Outcome
from sweep.checks.differences import Pair, Series, in_common, series
from sweep.errors import RequestError
from sweep.facts import Facts, LaunchFacts, Step

EQUAL: tuple[tuple[str, Callable[[Step], object]], ...] = (
    ("learning rate", lambda step: step.lr),
    ("batch", lambda step: step.batch_digests),
    ("random stream", lambda step: step.rng_digests),
    ("untrained buffers", lambda step: step.buffers_digest),
)
EXACT = ("cpu",)  # devices that add up in the same order each time


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
    first = min((step.step for step in resumed.metrics.steps), default=resumed.first_step)
    if first < resumed.first_step:
        message = f"began at step {first}, not {resumed.first_step}: it did not go on from there"
        return _finding(Outcome.FAIL, f"{resumed.name}: {message}", folder=resumed.directory)
    pairs = in_common(resumed.metrics.steps, whole.metrics.steps)
    if len(pairs) < 2:
        message = f"{len(pairs)} steps to compare after the resume; at least 2 are needed"
        return _finding(Outcome.INCONCLUSIVE, message, folder=resumed.directory)
    compared = list(figures(pairs))
    metrics = {f"resume/{one.name}_delta_max": one.largest for one in compared}
    metrics |= _inexact_steps(pairs)
    try:
        problem = _unequal(pairs) or _too_far(compared, facts) or _no_repeat(pairs, facts)
    except RequestError as error:
        return _finding(Outcome.INCONCLUSIVE, str(error), metrics, resumed.directory)
    if not problem:
        return _finding(Outcome.PASS, _unseen(pairs), metrics)
    finding = _finding(Outcome.FAIL, problem, metrics, resumed.directory)
    finding.margin = _margin(compared, facts)
    return finding


def figures(pairs: list[Pair]) -> Iterator[Series]:
    """What is compared of the steps that both launches have."""
    yield series("loss", lambda step: step.loss, pairs, is_relative=False)
    if all(step.grad_norm is not None for pair in pairs for step in pair):
        yield series("grad_norm", lambda step: step.grad_norm or 0.0, pairs, is_relative=False)


def _margin(compared: Sequence[Series], facts: Facts) -> float | None:
    """How many times its threshold the farthest figure is; None if none has a threshold."""
    limits = ((one, thresholds.configured("resume", one.name, facts.case)) for one in compared)
    return max((one.margin(limit) for one, limit in limits if limit is not None), default=None)


def _unequal(pairs: list[Pair]) -> str:
    for resumed, whole in pairs:
        for name, value in EQUAL:
            if value(whole) != value(resumed):
                return (
                    f"step {whole.step}: the {name} is {value(resumed)} resumed, "
                    f"{value(whole)} in the uninterrupted run"
                )
    return ""


def _unseen(pairs: list[Pair]) -> str:
    """Which of the figures that must be equal neither launch reports; empty if none is missing."""
    steps = [step for pair in pairs for step in pair]
    unseen = [name for name, value in EQUAL if all(value(step) in (None, []) for step in steps)]
    return f"not compared, since it is not reported: {', '.join(unseen)}" if unseen else ""


def _inexact_steps(pairs: list[Pair]) -> dict[str, float]:
    """How many steps have other gradients, to the last bit; nothing where no digests are."""
    if not all(step.gradient_digests for pair in pairs for step in pair):
        return {}
    other = sum(resumed.gradient_digests != whole.gradient_digests for resumed, whole in pairs)
    return {"resume/inexact_steps": float(other)}


def _no_repeat(pairs: list[Pair], facts: Facts) -> str:
    """The first gradient that is not the same to the last bit, on a device that repeats itself."""
    if facts.case.device not in EXACT:
        return ""
    for resumed, whole in pairs:
        digests = zip_longest(resumed.gradient_digests, whole.gradient_digests)
        ranks = [rank for rank, (ours, theirs) in enumerate(digests) if ours != theirs]
        if ranks:
            return (
                f"step {whole.step}: the gradient is another in its last bits resumed than in the"
                f" uninterrupted run (rank {', '.join(map(str, ranks))}): {facts.case.device}"
                " repeats itself, so look for memory that is read before it is written, or for"
                " something that depends on time"
            )
    return ""


def _too_far(compared: Sequence[Series], facts: Facts) -> str:
    for one in compared:
        limit = thresholds.of_case("resume", (one.name,), facts.case)
        if one.first_beyond(limit) is not None:
            return one.said(limit, "resumed", "the uninterrupted run")
    return ""


def _finding(
    outcome: Outcome, message: str = "", metrics: dict[str, float] | None = None, folder: str = ""
) -> Finding:
    return Finding(
        check="resume", outcome=outcome, message=message, metrics=metrics or {}, folder=folder
    )
