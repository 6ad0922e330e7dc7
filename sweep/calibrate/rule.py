"""The rule: a threshold is the geometric mean of the largest correct and the smallest broken delta.

If the two are less than a factor of `FACTOR` apart, there is no threshold. Correct runs are often
equal to the last bit, and a measured zero says nothing about smaller differences. The largest
correct delta is therefore at least the `floor`, the smallest difference that the figure can have:
one unit in the last place of float32, or 1 where places are counted. The mean over the steps gets
its own bound by the same rule, from the means of the same runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

FACTOR = 10.0
FLOAT32_EPS = 2.0**-23


@dataclass(frozen=True)
class Delta:
    """How far one run is from its reference, at its farthest step or on average."""

    case: str
    value: float
    fault: str | None = None


@dataclass(frozen=True)
class Population:
    """All deltas of one figure of one check, on one kind of device."""

    check: str
    figure: str
    device: str
    dtype: str
    correct: Sequence[Delta]
    broken: Sequence[Delta]
    floor: float
    is_mean: bool = False  # of the signed mean over the steps, not of the farthest step

    @property
    def name(self) -> str:
        """As in conf/thresholds.yaml."""
        name = f"{self.check}.{self.figure}.{self.device}.{self.dtype}"
        return f"{name}.mean" if self.is_mean else name

    @property
    def largest_correct(self) -> float:
        """The largest correct delta, at least the floor."""
        return max(self.floor, *(delta.value for delta in self.correct))

    @property
    def weakest(self) -> Delta:
        """The broken run with the smallest delta."""
        return min(self.broken, key=lambda delta: delta.value)

    @property
    def separation(self) -> float:
        """The smallest broken delta divided by the largest correct one."""
        return self.weakest.value / self.largest_correct

    @property
    def threshold(self) -> float | None:
        """Between the two; None if they are too close, or one kind was not measured."""
        if self.refusal:
            return None
        return float(f"{math.sqrt(self.largest_correct * self.weakest.value):.2e}")

    @property
    def refusal(self) -> str:
        """Why there is no threshold, naming broken cases that are too weak; else empty."""
        for kind, deltas in (("correct", self.correct), ("broken", self.broken)):
            if not deltas:
                return f"{self.name}: no {kind} run was measured"
            unmeasured = [delta.case for delta in deltas if not math.isfinite(delta.value)]
            if unmeasured and kind == "correct":
                return f"{self.name}: {unmeasured[0]} is correct, and its figures are not finite"
        if self.separation >= FACTOR:
            return ""
        weak = [delta for delta in self.broken if delta.value < FACTOR * self.largest_correct]
        names = ", ".join(f"{delta.fault} in {delta.case} ({delta.value:.1e})" for delta in weak)
        return (
            f"{self.name}: correct runs differ by up to {self.largest_correct:.1e}, which is less"
            f" than a factor of {FACTOR:g} below these broken ones: {names}; they are too weak"
        )

    def still_separates(self, value: float) -> str:
        """Why a threshold in use is wrong; empty if it lies between the two kinds."""
        if self.largest_correct >= value:
            worst = max(self.correct, key=lambda delta: delta.value)
            return f"{worst.case} is correct, and off by {self.largest_correct:.1e}"
        if self.weakest.value <= value:
            return f"{self.weakest.fault} in {self.weakest.case} is off by {self.weakest.value:.1e}"
        return ""
