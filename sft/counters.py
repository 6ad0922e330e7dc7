"""Counts that prove a layout or a feature was really on, kept per step and rank."""

from __future__ import annotations

from collections import defaultdict

_counts: defaultdict[str, float] = defaultdict(float)


def add(name: str, amount: float) -> None:
    """Add to a counter of this rank."""
    _counts[name] += amount


def take() -> dict[str, float]:
    """This rank's counters since the last call."""
    taken = dict(_counts)
    _counts.clear()
    return taken
