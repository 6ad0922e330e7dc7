"""A case's loss and gradient norm over those of its reference, small enough for a page.

MLflow charts the same at any size, and loss.png has every layout: a page that is mailed has this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sweep.facts import Step
from sweep.report.plots import FIGURES, difference, not_finite
from sweep.report.result import Result, reference_of
from sweep.report.svg import curves

if TYPE_CHECKING:
    from markupsafe import Markup


def pictures(result: Result, results: Sequence[Result]) -> list[tuple[str, Markup]]:
    """Its caption and the picture, for each figure that the case reports."""
    own = result.facts.steps if result.facts else []
    reference = reference_of(result, results)
    other = reference.facts.steps if reference and reference.facts else []
    apart = difference(own, other)
    against = f" over {reference.case.id}" if reference else ""
    found = []
    for name, title in FIGURES:
        lines = {"other": _points(other, name), "own": _points(own, name)}
        if any(value is not None for _, value in lines["own"]):
            more = apart if reference and name == "loss" else ""
            said = f"{title}{against}{more}{not_finite(own)}"
            found.append((said, curves(lines, said)))
    return found


def _points(steps: Sequence[Step], name: str) -> list[tuple[float, float | None]]:
    ordered = sorted(steps, key=lambda step: step.step)
    return [(step.step, getattr(step, name)) for step in ordered]
