"""By how much two records differ, and what rounding alone does there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.locate.reading import Key

Array = Any
FLOOR = 2e-7  # relative: two units in the last place of float32, where rounding was not measured
COARSE = {"update": 2e-6}  # a step is added to a weight that has no more places for it
FACTOR = 8.0  # by which a difference must be above what rounding does
LATER = (
    32.0  # likewise in later steps: Adam turns what rounding did to a small gradient into a step
)
SHARE = 0.1  # of the root mean square: what smaller norms are measured against


@dataclass(frozen=True)
class Difference:
    """Of one record: where it is beyond rounding, and by how much."""

    key: Key
    rows: Array  # numbers of the tokens, or of the parameter's rows, that differ
    size: float  # the largest relative difference
    rounding: float  # what rounding does there, relative, for 99 in 100
    worst: int  # the token or row of the largest difference

    @property
    def excess(self) -> float:
        """How many times what rounding does."""
        return self.size / max(self.rounding, FLOOR)


def between(
    key: Key, ours: Array, theirs: Array, again: Array | None, factor: float = FACTOR
) -> Difference | None:
    """None where the two agree but for rounding, which `again` measures against `theirs`.

    A row of zeros has no rounding, and says nothing of the others.
    """
    if ours.shape != theirs.shape:
        return Difference(key, np.arange(len(ours)), float("inf"), 0.0, 0)
    scale = _scale(key, theirs)
    off = _off(key, ours, theirs, scale)
    noise = np.zeros(len(theirs))
    if again is not None and again.shape == theirs.shape:
        noise = _off(key, again, theirs, scale)
    some = noise[np.isfinite(noise) & (np.nan_to_num(_norms(key, theirs)) > 0)]
    usual = float(np.quantile(some, 0.99)) if len(some) else 0.0
    limit = factor * max(usual, COARSE.get(key.kind, FLOOR))
    beyond = np.flatnonzero(off > limit)
    if len(beyond) <= 2 * int((noise > limit).sum()):
        return None if key.kind == "heads" else _all_scaled(key, ours, theirs, again, factor)
    worst = int(np.nanargmax(off))
    return Difference(key, beyond, float(off[worst]), usual, worst)


def _all_scaled(
    key: Key, ours: Array, theirs: Array, again: Array | None, factor: float
) -> Difference | None:
    """All of it is scaled by a factor that no single row shows: rounding has no direction."""
    size = abs(_factor(ours, theirs) - 1)
    noise = 0.0 if again is None else abs(_factor(again, theirs) - 1)
    if not size > factor * max(noise, COARSE.get(key.kind, FLOOR)):
        return None
    norms = np.nan_to_num(theirs[:, -1])
    return Difference(key, np.flatnonzero(norms), size, noise, int(norms.argmax()))


def _factor(ours: Array, theirs: Array) -> float:
    """The factor by which one is the other, as near as it gets."""
    a, b = ours[:, :-1].astype(np.float64), theirs[:, :-1].astype(np.float64)
    known = np.isfinite(a).all(1) & np.isfinite(b).all(1)
    length = (b[known] ** 2).sum()
    return float((a[known] * b[known]).sum() / length) if length else 1.0


def _scale(key: Key, x: Array) -> Array:
    """[n] what a difference is measured against: the norm, or a share of what is usual."""
    norms = _norms(key, x)
    usual = np.sqrt(np.nanmean(norms**2)) if np.isfinite(norms).any() else 0.0
    return np.maximum(norms, SHARE * usual) + 1e-30


def _norms(key: Key, x: Array) -> Array:
    return np.abs(x).mean(1) if key.kind == "heads" else x[:, -1]


def _off(key: Key, ours: Array, theirs: Array, scale: Array) -> Array:
    """[n] relative; infinite where one has a number that is none; NaN where one has no record."""
    a, b = (ours, theirs) if key.kind == "heads" else (ours[:, :-1], theirs[:, :-1])
    with np.errstate(invalid="ignore", over="ignore"):
        off: Array = np.sqrt(((a - b) ** 2).mean(1)) / scale
        return off
