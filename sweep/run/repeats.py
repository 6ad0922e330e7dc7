"""Runs of the same launch: equal to the bit, or more of them are needed to know how they differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sweep.facts import LaunchFacts, Step

COMPARED = ("loss", "grad_norm", "aux_loss", "grad_norm_groups", "gradient_digests")


def are_needed(launches: Sequence[LaunchFacts]) -> bool:
    """Whether one more repeat tells anything: after one that is equal to the bit, none does."""
    whole = launches[0]
    repeated = [launch for launch in launches if launch.repeats == whole.name]
    return not any(is_equal(whole, launch) for launch in repeated)


def is_equal(launch: LaunchFacts, other: LaunchFacts) -> bool:
    """Whether both have the same figures at the same steps, to the last bit."""
    return [_figures(step) for step in launch.metrics.steps] == [
        _figures(step) for step in other.metrics.steps
    ]


def _figures(step: Step) -> list[Any]:
    return [step.step, *(getattr(step, name) for name in COMPARED)]
