"""Evidence that shows nothing any more: digests, counts and memory that cannot be what they say.

Other checks rest on these figures. One that stands still, or that does not add up, would let
everything pass that it is there to show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any

from sweep.facts import LaunchFacts, Step

Digests = list[str]


def problem(launch: LaunchFacts) -> str:
    """The first figure of a launch that cannot be right; empty if there is none."""
    steps = launch.metrics.steps
    return next(chain(_of_steps(steps), _of_pairs(steps)), "")


def _of_steps(steps: list[Step]) -> Iterator[str]:
    for step in steps:
        if step.peak_memory_gib is not None and not step.peak_memory_gib > 0:
            yield f"peak_memory_gib is {step.peak_memory_gib} at step {step.step}"
        chosen = choices(step)
        if chosen is not None and step.choices_by_place and chosen != sum(step.choices_by_place):
            yield (
                f"choices_by_place adds up to {sum(step.choices_by_place):.0f} at step {step.step},"
                f" choices_fingerprint to {chosen:.0f}"
            )


def _of_pairs(steps: list[Step]) -> Iterator[str]:
    for before, step in pairwise(steps):
        if other_data(before, step):
            for name, value in OF_DATA.items():
                if value(step) and value(step) == value(before):
                    yield _still(name, before, step)
        for rank, digest in enumerate(step.gradient_digests):
            if digest in before.gradient_digests[rank : rank + 1]:
                yield _still(f"gradient_digests of rank {rank}", before, step)


def other_data(before: Step, step: Step) -> bool:
    """Whether the trainer says that two steps trained on other rows."""
    both = (before.global_batch_digest, step.global_batch_digest)
    return None not in both and both[0] != both[1]


def choices(step: Step) -> float | None:
    """Those of all ranks as one number; None where the trainer reports none."""
    kept: Any = step.counters.get("choices_fingerprint")
    if kept is None:
        return None
    return math.fsum(kept) if isinstance(kept, list) else float(kept)


OF_DATA: dict[str, Callable[[Step], object]] = {
    "batch_digests": lambda step: step.batch_digests,
    "sequence_digests": lambda step: step.sequence_digests,
    "choices_fingerprint": lambda step: step.counters.get("choices_fingerprint"),
}


def _still(name: str, before: Step, step: Step) -> str:
    return f"{name} at step {step.step} is that of step {before.step}: it shows nothing"
