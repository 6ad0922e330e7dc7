"""How far a resume may be off: what whole runs of the same case differ by, measured on them.

The calibrated threshold is the upper bound. Whole runs can be equal where correct resumes are not
(memory is laid out otherwise, sums are split otherwise), so a few units in the last place always
pass, unless equality to the bit is demanded (`exact` in conf/thresholds.yaml).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import combinations

from sweep.case.labels import Case
from sweep.checks import thresholds
from sweep.checks.differences import Series, in_common
from sweep.checks.thresholds import Threshold
from sweep.facts import LaunchFacts, Step

MULTIPLE = 3.0  # of the largest difference between whole runs
ULPS = 3.0  # units in the last place of float32
FLOAT32_DIGITS = 24  # binary ones

Steps = Sequence[Step]
Figures = Callable[[list[tuple[Step, Step]]], Iterable[Series]]


def closest(
    resumed: Sequence[LaunchFacts], wholes: Sequence[LaunchFacts], figures: Figures
) -> list[Series]:
    """Each figure over the steps of the resumed and the whole run that are the nearest in it."""
    found: dict[str, list[Series]] = {}
    for launch in resumed:
        for whole in wholes:
            pairs = in_common(launch.metrics.steps, whole.metrics.steps)
            for one in figures(pairs) if pairs else ():
                found.setdefault(one.name, []).append(one)
    return [min(same, key=lambda one: one.largest) for same in found.values()]


def among(wholes: Sequence[LaunchFacts], since: int, figures: Figures) -> dict[str, float]:
    """The largest difference of each figure between whole runs, from a step on."""
    found: dict[str, float] = {}
    for launch, other in combinations(wholes, 2):
        pairs = in_common(launch.metrics.steps, other.metrics.steps)
        pairs = [pair for pair in pairs if pair[0].step >= since]
        for one in figures(pairs) if pairs else ():
            found[one.name] = max(found.get(one.name, 0.0), one.largest)
    return {name: size for name, size in found.items() if math.isfinite(size)}


def limit(one: Series, noise: float | None, case: Case) -> Threshold:
    """The farthest that a resume may be off; raises RequestError where nothing is known of it."""
    least = ulp(one)
    if thresholds.is_exact(case):
        source = f"conf/{thresholds.FILE}: resumes of {case.trainer} on {case.device} are exact"
        return Threshold(value=least / 2, source=source)
    calibrated = thresholds.configured("resume", one.name, case)
    if noise is None:
        return calibrated or thresholds.of_case("resume", (one.name,), case)
    measured = _measured(noise, max(ULPS * least, _step_of_log(one)))
    if calibrated is None:
        return measured
    if calibrated.value <= measured.value:
        return calibrated
    return calibrated.model_copy(update={
        "value": measured.value, "source": measured.source,
        "mean_source": calibrated.mean_source or calibrated.source,
    })  # fmt: skip


def _measured(noise: float, least: float) -> Threshold:
    if MULTIPLE * noise > least:
        source = f"measured: {MULTIPLE:g} times what whole runs differ by, {noise:.1e}"
        return Threshold(value=MULTIPLE * noise, source=source)
    differ = f"differ by {noise:.1e}" if noise else "are equal"
    return Threshold(value=least, source=f"measured: whole runs {differ}; the last digits pass")


def ulp(one: Series) -> float:
    """A unit in the last place of float32, of the largest figure."""
    largest = max(max(abs(point.value), abs(point.reference)) for point in one.points)
    exponent = math.frexp(largest)[1] if math.isfinite(largest) else 0
    return math.ldexp(1.0, exponent - FLOAT32_DIGITS)


def _step_of_log(one: Series) -> float:
    """A unit in the last digit as it was written, and what reading it rounds; 0 where it is less."""
    written = resolution([point.value for point in one.points]
                         + [point.reference for point in one.points])  # fmt: skip
    least = ULPS * ulp(one)
    return 1.01 * written * math.ceil(least / written) if written > ulp(one) else 0.0


def resolution(values: Sequence[float]) -> float:
    """A unit in the last decimal place that any of them has."""
    exponents = [
        Decimal(repr(value)).as_tuple().exponent for value in values if math.isfinite(value)
    ]
    return 10.0 ** min((int(one) for one in exponents), default=0)


def coarse(compared: Sequence[Series]) -> str:
    """The figures whose digits are too few to tell what `limit` could; empty if there is none."""
    found = []
    for one in compared:
        values = [value for point in one.points for value in (point.value, point.reference)]
        if (step := resolution(values)) > ULPS * ulp(one):
            found.append(f"{one.name} is written in steps of {step:.0e}")
    hint = "what is less cannot be seen; let the trainer write more digits"
    return f"{', '.join(found)}: {hint}" if found else ""
