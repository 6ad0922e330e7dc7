"""Every expected step is there exactly once and in order, with finite figures.

Decided from the facts: MLflow's SQL store turns NaN into 0 and infinity into a large number.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from sweep.checks.base import Context, Finding, Outcome
from sweep.facts import Facts, LaunchFacts, Step

NAMED = 10  # steps that a message names one by one


def check(facts: Facts, _context: Context) -> Finding:
    """Fail on the first launch with a step missing, doubled, unreadable or not finite."""
    for launch in facts.launches:
        wrong = problem(launch) or _untold(launch, facts)
        if wrong:
            return Finding(
                check="finite",
                outcome=Outcome.FAIL,
                message=f"{launch.name}: {wrong}",
                metrics={"loss/finite": 0.0},
                folder=launch.directory,
            )
    if not facts.launches:
        return Finding(check="finite", outcome=Outcome.INCONCLUSIVE, message="nothing ran")
    return Finding(check="finite", outcome=Outcome.PASS, metrics={"loss/finite": 1.0})


def problem(launch: LaunchFacts) -> str:
    """What is missing, doubled, out of order, unreadable or not finite; empty if nothing is."""
    if launch.metrics.bad_lines:
        return f"unreadable metrics, {launch.metrics.bad_lines[0]}"
    for step in launch.metrics.steps:
        for name, value in _figures(step):
            if not math.isfinite(value):
                return f"{name} is {value} at step {step.step}"
    return _wrong_steps(launch)


def _figures(step: Step) -> Iterator[tuple[str, float]]:
    """All that other checks compare: NaN is neither above a limit nor below."""
    for name in ("loss", "grad_norm", "aux_loss", "clip_coefficient", "grad_norm_clipped", "lr"):
        if (value := getattr(step, name)) is not None:
            yield name, value
    yield from ((f"grad_norm of {name}", value) for name, value in step.grad_norm_groups.items())
    yield from (("choices_by_place", value) for value in step.choices_by_place)
    for name, counted in step.counters.items():
        values = counted if isinstance(counted, list) else [counted]
        yield from ((name, value) for value in values if isinstance(value, float))


def _untold(launch: LaunchFacts, facts: Facts) -> str:
    """A gradient norm that is not there, and that nobody said would not be."""
    if "grad_norm" in facts.asked.get("not_shown", []):
        return ""
    untold = [step.step for step in launch.metrics.steps if step.grad_norm is None]
    hint = "a trainer that has none declares trainer.not_shown=[grad_norm]"
    return f"no grad_norm at step {untold[0]}; {hint}" if untold else ""


def _wrong_steps(launch: LaunchFacts) -> str:
    expected = range(launch.first_step, launch.last_step + 1)
    counts = Counter(step.step for step in launch.metrics.steps)
    missing = [step for step in expected if not counts[step]]
    twice = [step for step, count in counts.items() if count > 1]
    foreign = [step for step in counts if step not in expected]
    parts = (("missing", missing), ("more than once", twice), ("not asked for", foreign))
    said = [f"{what}: {_listed(steps)}" for what, steps in parts if steps]
    said += [
        f"out of order: {after} after {before}"
        for before, after in _out_of_order(launch.metrics.steps)[:1]
    ]
    if not said:
        return ""
    asked = f"{len(expected)} losses at steps {launch.first_step} to {launch.last_step}"
    return f"expected {asked}, got {len(launch.metrics.steps)} ({'; '.join(said)})"


def _out_of_order(steps: Sequence[Step]) -> list[tuple[int, int]]:
    return [
        (before.step, after.step) for before, after in pairwise(steps) if after.step < before.step
    ]


def _listed(steps: Sequence[int]) -> str:
    more = f" and {len(steps) - NAMED} more" if len(steps) > NAMED else ""
    return ", ".join(map(str, steps[:NAMED])) + more
