"""How far a figure is from the one that it is compared with, step by step, and how that is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sweep.checks.thresholds import Threshold
from sweep.facts import Step

Pair = tuple[Step, Step]  # ours, and what it is compared with, of the same step


@dataclass(frozen=True)
class Point:
    """A figure at a step, ours and the other."""

    step: int
    value: float
    reference: float

    @property
    def signed(self) -> float:
        """Above zero where ours is larger; a comparison with NaN is far, not near."""
        difference = self.value - self.reference
        return difference if math.isfinite(difference) else math.inf

    @property
    def relative(self) -> float:
        """The same as a share of the other's figure."""
        if not math.isfinite(self.signed):
            return math.inf
        return self.signed / max(abs(self.reference), 1e-30) if self.signed else 0.0


@dataclass(frozen=True)
class Series:
    """A figure over the steps that are compared, at least one."""

    name: str
    points: Sequence[Point]
    is_relative: bool = True  # what its threshold is about

    def size(self, point: Point) -> float:
        """How far it is, as its threshold means it."""
        return abs(point.relative if self.is_relative else point.signed)

    @property
    def worst(self) -> Point:
        """Where it is farthest."""
        return max(self.points, key=self.size)

    @property
    def largest(self) -> float:
        """How far it is there."""
        return self.size(self.worst)

    @property
    def mean(self) -> float:
        """The signed mean: a one-sided drift is small at each step and plain here."""
        values = [point.relative if self.is_relative else point.signed for point in self.points]
        return sum(values) / len(values)

    def margin(self, limit: Threshold) -> float:
        """How many times its threshold the farthest point, or the mean, is."""
        mean = abs(self.mean) / limit.mean if limit.mean is not None else 0.0
        return max(self.largest / limit.value, mean)

    def first_beyond(self, limit: Threshold) -> int | None:
        """The first step that is too far; the first of all if only the mean is; None if none is."""
        far = [point.step for point in self.points if self.size(point) > limit.value]
        if far:
            return far[0]
        is_one_sided = limit.mean is not None and abs(self.mean) > limit.mean
        return self.points[0].step if is_one_sided else None

    def said(self, limit: Threshold, ours: str, theirs: str) -> str:
        """What is beyond the threshold, where and by how much."""
        at = next((point for point in self.points if self.size(point) > limit.value), None)
        if at is None:
            return self._said_of_mean(limit, theirs)
        unit = " relative" if self.is_relative else ""
        ours = f" {ours}" if ours else ""
        return (
            f"step {at.step}: {self.name} is {at.value:.8g}{ours}, {at.reference:.8g} in {theirs}:"
            f" off by {abs(at.signed):.2e} (relative {abs(at.relative):.2e}); at most"
            f" {self.largest:.2e}{unit} at step {self.worst.step}, {self.mean:+.2e} on average;"
            f" threshold {limit.value:.1e}{unit} ({limit.source})"
        )

    def _said_of_mean(self, limit: Threshold, theirs: str) -> str:
        unit = " relative" if self.is_relative else ""
        worst = self.worst
        return (
            f"steps {self.points[0].step} to {self.points[-1].step}: {self.name} is off by"
            f" {self.mean:+.2e}{unit} on average, to one side, from {theirs} (at most"
            f" {abs(worst.signed):.2e}, relative {abs(worst.relative):.2e}, at step {worst.step});"
            f" threshold of the mean {limit.mean:.1e}{unit} ({limit.mean_source or limit.source})"
        )


def in_common(ours: Sequence[Step], theirs: Sequence[Step]) -> list[Pair]:
    """The steps that both have, by their number, never by position."""
    others = {step.step: step for step in theirs}
    own = {step.step: step for step in ours}
    return [(own[number], others[number]) for number in sorted(own) if number in others]


def series(
    name: str, figure: Callable[[Step], float], pairs: Sequence[Pair], is_relative: bool = True
) -> Series:
    """A figure of the pairs, of which there is at least one."""
    points = [Point(ours.step, figure(ours), figure(theirs)) for ours, theirs in pairs]
    return Series(name, points, is_relative)


def places_apart(pair: Pair) -> int:
    """How many places of the batch have a token whose experts or keys are others."""
    ours, theirs = (step.choices_by_place for step in pair)
    return sum(a != b for a, b in zip(ours, theirs, strict=False))


def same_choices(pair: Pair) -> bool:
    """Whether tokens went to the same experts, and queries picked the same keys."""
    ours, theirs = pair
    return _choices(ours) == _choices(theirs)


def _choices(step: Step) -> float:
    """Over all ranks, so that it is the same in every layout."""
    kept: Any = step.counters.get("choices_fingerprint", [])
    return float(sum(kept) if isinstance(kept, list) else kept)
