"""Where a figure is going over nights: its nearest approach to a threshold, and a warning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from statistics import median

FEW = 5  # nights; fewer tell no trend
LOOK_BACK = 30  # nights that a trend is taken over
STEADY = 0.8  # the share of pairs of nights that must rise
HORIZON = 14.0  # nights ahead
NEAR = 0.9  # of a threshold


@dataclass(frozen=True)
class Trend:
    """A check's margins (multiples of its threshold), the oldest first; at least one."""

    check: str
    values: Sequence[float]

    @property
    def latest(self) -> float:
        """Last night's."""
        return self.values[-1]

    @property
    def closest(self) -> float:
        """The nearest that it came while it kept to its threshold; else the latest."""
        return max((value for value in self.values if value <= 1), default=self.latest)

    @cached_property
    def slope(self) -> float:
        """The median rise in a night (Theil and Sen); 0 where most pairs of nights do not rise."""
        recent = list(enumerate(self.values))[-LOOK_BACK:]
        if len(recent) < FEW:
            return 0.0
        slopes = [(b - a) / (j - i) for (i, a), (j, b) in combinations(recent, 2)]
        rising = sum(slope > 0 for slope in slopes) / len(slopes)
        return median(slopes) if rising >= STEADY else 0.0

    @property
    def nights_left(self) -> float:
        """Until it passes its threshold at this pace; infinite if it does not rise."""
        return (1 - self.latest) / self.slope if self.slope > 0 else math.inf

    @property
    def warning(self) -> str:
        """That it is about to fail; empty if it is not, or has failed already."""
        if self.latest > 1:
            return ""
        said = f"{self.check} is at {self.latest:.2g} of its threshold"
        if self.nights_left <= HORIZON:
            return (
                f"{said} and rising: at this pace it fails in {math.ceil(self.nights_left)} nights"
            )
        return said if self.latest >= NEAR else ""
