"""A resumed run continues the one it was saved from: the same run's own later steps.

Batches, learning rate, random streams and buffers must be equal; losses and gradient norms agree
within what whole runs of the same case differ by (sweep/checks/noise.py), the calibrated threshold
being the upper bound. With Adam's moments lost the first resumed step can still agree, so every
later step counts. Where correct resumes are exact, gradients are equal to the bit: memory that
nobody wrote shows in them while losses still round to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, zip_longest

from sweep.case.labels import Case
from sweep.checks import noise
from sweep.checks.base import Context, Finding, Outcome, largest_margin, largest_metrics
from sweep.checks.differences import Pair, Series, in_common, series
from sweep.checks.thresholds import Table, Threshold
from sweep.errors import RequestError
from sweep.facts import Facts, LaunchFacts, Step

BUFFERS = "untrained buffers"
EQUAL: tuple[tuple[str, Callable[[Step], object]], ...] = (
    ("learning rate", lambda step: step.lr),
    ("batch", lambda step: step.batch_digests),
    ("random stream", lambda step: step.rng_digests),
    (BUFFERS, lambda step: step.buffers_digest),
)
Limited = tuple[Series, Threshold]
LIMITED = ("loss", "grad_norm")
"""What may have a threshold."""


def check(facts: Facts, context: Context) -> Finding | None:
    """Compare each resumed launch with the whole run; None where the case does not resume."""
    asked = facts.asked.get("resume_at")
    if not asked:
        return None
    if len(facts.own_launches) <= len(asked):
        message = f"{len(facts.own_launches)} of {len(asked) + 1} launches ran"
        return _finding(Outcome.INCONCLUSIVE, message)
    whole, *resumed = facts.own_launches
    wholes = facts.runs_of(whole)
    findings = [
        _compared(wholes, facts.runs_of(launch), facts.case, context.limits) for launch in resumed
    ]
    worst = next(
        (finding for finding in findings if finding.outcome is not Outcome.PASS), findings[0]
    )
    update = {"metrics": largest_metrics(findings), "margin": largest_margin(findings)}
    return worst.model_copy(update=update)


def _compared(
    wholes: Sequence[LaunchFacts], resumed: Sequence[LaunchFacts], case: Case, table: Table
) -> Finding:
    """One launch that resumed, and its repeats, with the whole runs."""
    for launch in resumed:
        if (wrong := _not_comparable(launch, wholes[0])) is not None:
            return _finding(*wrong, folder=launch.directory)
    pairs = in_common(resumed[0].metrics.steps, wholes[0].metrics.steps)
    compared = noise.closest(resumed, wholes, figures)
    differ = noise.among(wholes, resumed[0].first_step, figures)
    metrics = {f"resume/{series.name}_delta_max": series.largest for series in compared}
    metrics |= {f"resume/{name}_noise": size for name, size in differ.items()}
    metrics |= _inexact_steps(pairs)
    folder = resumed[0].directory
    unequal = _unequal(wholes, resumed)
    try:
        limited = [
            (series, noise.limit(series, differ.get(series.name), case, table))
            for series in compared
        ]
    except RequestError as error:
        outcome = Outcome.FAIL if unequal else Outcome.INCONCLUSIVE
        return _finding(outcome, unequal or str(error), metrics, folder)
    problem = unequal or _too_far(limited)
    if not problem and table.is_exact(case):
        problem = _other_bits(wholes, resumed)
    if problem:
        finding = _finding(Outcome.FAIL, problem, metrics, folder)
    else:
        notes = _unseen(pairs), noise.coarse(compared)
        finding = _finding(Outcome.PASS, "; ".join(filter(None, notes)), metrics)
    finding.margin = max((figure.margin(limit) for figure, limit in limited), default=None)
    return finding


def _not_comparable(resumed: LaunchFacts, whole: LaunchFacts) -> tuple[Outcome, str] | None:
    first = min((step.step for step in resumed.metrics.steps), default=resumed.first_step)
    if first < resumed.first_step:
        message = f"began at step {first}, not {resumed.first_step}: it did not go on from there"
        return Outcome.FAIL, f"{resumed.name}: {message}"
    count = len(in_common(resumed.metrics.steps, whole.metrics.steps))
    if count < 2:
        message = f"{count} steps to compare after the resume; at least 2 are needed"
        return Outcome.INCONCLUSIVE, message
    return None


def figures(pairs: list[Pair]) -> Iterator[Series]:
    """What is compared of the steps that both launches have."""
    yield series("loss", lambda step: step.loss, pairs, is_relative=False)
    if all(step.grad_norm is not None for pair in pairs for step in pair):
        yield series("grad_norm", lambda step: step.grad_norm or 0.0, pairs, is_relative=False)


def _unequal(wholes: Sequence[LaunchFacts], resumed: Sequence[LaunchFacts]) -> str:
    """The first figure that must be equal and is not, in any of the resumed runs."""
    is_moved = any(
        _other(in_common(whole.metrics.steps, other.metrics.steps), BUFFERS)
        for whole, other in pairwise(wholes)
    )
    names = [name for name, _ in EQUAL if name != BUFFERS or not is_moved]
    for launch in resumed:
        pairs = in_common(launch.metrics.steps, wholes[0].metrics.steps)
        if problem := _other(pairs, *names):
            return problem
    return ""


def _other(pairs: list[Pair], *names: str) -> str:
    for resumed, whole in pairs:
        for name, value in EQUAL:
            if name in names and value(whole) != value(resumed):
                return (
                    f"step {whole.step}: the {name} is {value(resumed)} resumed, "
                    f"{value(whole)} in the uninterrupted run"
                )
    return ""


def _unseen(pairs: list[Pair]) -> str:
    """Which figures neither launch reports, so that they are not compared; empty if none."""
    steps = [step for pair in pairs for step in pair]
    known = (*EQUAL, ("gradient_digests", lambda step: step.gradient_digests))
    unseen = [name for name, value in known if all(value(step) in (None, []) for step in steps)]
    return f"not compared, since it is not reported: {', '.join(unseen)}" if unseen else ""


def _inexact_steps(pairs: list[Pair]) -> dict[str, float]:
    """How many steps have other gradients, to the last bit; nothing where no digests are."""
    if not all(step.gradient_digests for pair in pairs for step in pair):
        return {}
    other = sum(resumed.gradient_digests != whole.gradient_digests for resumed, whole in pairs)
    return {"resume/inexact_steps": float(other)}


def _other_bits(wholes: Sequence[LaunchFacts], resumed: Sequence[LaunchFacts]) -> str:
    """The first gradient that is not the same to the last bit, resumed or in a repeat."""
    others = [
        *(("resumed", launch) for launch in resumed),
        *(("when repeated", launch) for launch in wholes[1:]),
    ]
    for how, launch in others:
        for ours, theirs in in_common(launch.metrics.steps, wholes[0].metrics.steps):
            digests = zip_longest(ours.gradient_digests, theirs.gradient_digests)
            ranks = [str(rank) for rank, (digest, other) in enumerate(digests) if digest != other]
            if ranks:
                return (
                    f"step {theirs.step}: the gradient is another in its last bits {how} than in"
                    f" the uninterrupted run (rank {', '.join(ranks)}): runs are equal here, so"
                    " look for memory that is read before it is written, or for something that"
                    " depends on time"
                )
    return ""


def _too_far(limited: Sequence[Limited]) -> str:
    for figure, limit in limited:
        if figure.first_beyond(limit) is not None:
            return figure.said(limit, "resumed", "the uninterrupted run")
    return ""


def _finding(
    outcome: Outcome, message: str = "", metrics: dict[str, float] | None = None, folder: str = ""
) -> Finding:
    return Finding(
        check="resume", outcome=outcome, message=message, metrics=metrics or {}, folder=folder
    )
