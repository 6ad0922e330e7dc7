"""Every expected step is there exactly once, with a finite loss and gradient norm.

Decided from the facts: MLflow's SQL store turns NaN into 0 and infinity into a large number.
"""

from __future__ import annotations

import math
from collections import Counter

from sweep.checks.base import Context, Finding, Outcome
from sweep.facts import Facts, LaunchFacts


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
    """What is missing, doubled, unreadable or not finite; empty if nothing is."""
    if launch.metrics.bad_lines:
        return f"unreadable metrics, {launch.metrics.bad_lines[0]}"
    for step in launch.metrics.steps:
        for name, value in (("loss", step.loss), ("grad_norm", step.grad_norm)):
            if value is not None and not math.isfinite(value):
                return f"{name} is {value} at step {step.step}"
    return _wrong_steps(launch)


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
    said = [f"{what}: {', '.join(map(str, steps))}" for what, steps in parts if steps]
    if not said:
        return ""
    asked = f"{len(expected)} losses at steps {launch.first_step} to {launch.last_step}"
    return f"expected {asked}, got {len(launch.metrics.steps)} ({'; '.join(said)})"
