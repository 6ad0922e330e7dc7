"""The model trains: without this every comparison can pass on two dead models."""

from __future__ import annotations

import math
from itertools import pairwise

from sweep.checks.base import Context, Finding, Outcome
from sweep.facts import Facts, LaunchFacts, Step

FROZEN = 1e-4  # a loss this close to ln(vocabulary) at every step has learnt nothing


def check(facts: Facts, _context: Context) -> Finding:
    """Fail if no gradient flows, no parameter moves, or the loss stands still."""
    unseen: Finding | None = None
    for launch in facts.launches:
        steps = [step for step in launch.metrics.steps if math.isfinite(step.loss)]
        if len(steps) < 2:
            return _finding(Outcome.INCONCLUSIVE, f"{launch.name}: fewer than two losses")
        problem = _still(steps) or _problem(steps, facts.vocab_size)
        problem = problem or _unmoved(steps, facts.case.dtype)
        if problem:
            return _finding(Outcome.FAIL, f"{launch.name}: {problem}", launch.directory)
        if any(step.params_moved is None for step in steps):
            unseen = unseen or _unseen(facts, launch)
    if not facts.launches:
        return _finding(Outcome.INCONCLUSIVE, "nothing ran")
    return unseen or _finding(Outcome.PASS)


def _unseen(facts: Facts, launch: LaunchFacts) -> Finding:
    """A trainer that declares that it does not tell is shown and not failed."""
    declared = "params_moved" in facts.asked.get("not_shown", [])
    message = f"{launch.name}: the trainer does not report params_moved"
    if not declared:
        message += "; one that has none declares trainer.not_shown=[params_moved]"
    finding = _finding(Outcome.INCONCLUSIVE, message, launch.directory)
    return finding.model_copy(update={"advisory": declared})


def _still(steps: list[Step]) -> str:
    for step in steps:
        if step.params_moved is not None and not 0 <= step.params_moved <= 1:
            return f"params_moved is {step.params_moved} at step {step.step}: it is a share"
        if step.params_moved == 0:
            return f"no parameter moved at step {step.step}"
        if names := ", ".join(step.params_without_gradient):
            return f"trained tensors have no gradient at step {step.step}: {names}"
    return ""


def _problem(steps: list[Step], vocab_size: int | None) -> str:
    for step in steps:
        if step.grad_norm is not None and not step.grad_norm > 0:
            return f"grad_norm is {step.grad_norm} at step {step.step}"
    if vocab_size and all(abs(step.loss - math.log(vocab_size)) < FROZEN for step in steps):
        return f"the loss stays at ln({vocab_size}) = {math.log(vocab_size):.5f}"
    for before, after in pairwise(steps):
        if before.loss == after.loss:
            return f"the loss is {after.loss} at step {before.step} and at step {after.step}"
    return ""


def _unmoved(steps: list[Step], dtype: str) -> str:
    """In float32 each step moves every trained tensor; in less, a small one may be rounded away."""
    for step in steps:
        if dtype == "float32" and step.params_moved is not None and step.params_moved < 1:
            share = f"{1 - step.params_moved:.1%} of the trained tensors"
            names = f" ({', '.join(step.params_unmoved)})" if step.params_unmoved else ""
            return f"{share} did not move at step {step.step}{names}: does the optimizer own them?"
    return ""


def _finding(outcome: Outcome, message: str = "", folder: str = "") -> Finding:
    return Finding(check="alive", outcome=outcome, message=message, folder=folder)
