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
from sweep.checks.thresholds import Table, Threshold
from sweep.facts import LaunchFacts, Step

MULTIPLE = 3.0  # of the largest difference between whole runs
ULPS = {"loss": 3.0, "grad_norm": 6.0}  # units in the last place of float32; a norm sums up more
FLOAT32_DIGITS = 24  # binary ones

Figures = Callable[[list[tuple[Step, Step]]], Iterable[Series]]


def closest(
    resumed: Sequence[LaunchFacts], wholes: Sequence[LaunchFacts], figures: Figures
) -> list[Series]:
    """Each figure over the steps of the resumed and the whole run that are the nearest in it."""
    by_name: dict[str, list[Series]] = {}
    for launch in resumed:
        for whole in wholes:
            pairs = in_common(launch.metrics.steps, whole.metrics.steps)
            for figure in figures(pairs) if pairs else ():
                by_name.setdefault(figure.name, []).append(figure)
    return [min(same, key=lambda figure: figure.largest) for same in by_name.values()]


def among(wholes: Sequence[LaunchFacts], since: int, figures: Figures) -> dict[str, float]:
    """The largest difference of each figure between whole runs, from a step on."""
    largest: dict[str, float] = {}
    for launch, other in combinations(wholes, 2):
        pairs = in_common(launch.metrics.steps, other.metrics.steps)
        pairs = [pair for pair in pairs if pair[0].step >= since]
        for figure in figures(pairs) if pairs else ():
            largest[figure.name] = max(largest.get(figure.name, 0.0), figure.largest)
    return {name: size for name, size in largest.items() if math.isfinite(size)}


def limit(series: Series, noise: float | None, case: Case, table: Table) -> Threshold:
    """The farthest that a resume may be off; raises RequestError where nothing is known of it."""
    if table.is_exact(case):
        source = f"conf/{thresholds.FILE}: resumes of {case.trainer} on {case.device} are exact"
        return Threshold(value=ulp(series) / 2, source=source)
    calibrated = table.configured("resume", series.name, case)
    if noise is None:
        return calibrated or table.of_case("resume", (series.name,), case)
    measured = _measured(noise, _last_digits(series))
    if calibrated is None:
        return measured
    if calibrated.value <= measured.value:
        return calibrated
    mean_source = calibrated.mean_source or calibrated.source
    return measured.model_copy(update={"mean": calibrated.mean, "mean_source": mean_source})


def _measured(noise: float, least: float) -> Threshold:
    if MULTIPLE * noise > least:
        source = f"measured: {MULTIPLE:g} times what whole runs differ by, {noise:.1e}"
        return Threshold(value=MULTIPLE * noise, source=source)
    differ = f"differ by {noise:.1e}" if noise else "are equal"
    return Threshold(value=least, source=f"measured: whole runs {differ}; the last digits pass")


def _last_digits(series: Series) -> float:
    """What always passes: some units in the last place, in whole steps of what was written."""
    least, step = ULPS[series.name] * ulp(series), resolution(series)
    return 1.01 * step * math.ceil(least / step) if step > ulp(series) else least


def ulp(series: Series) -> float:
    """A unit in the last place of float32, of the largest figure."""
    exponent = math.frexp(max(map(abs, _values(series)), default=0.0))[1]
    return math.ldexp(1.0, exponent - FLOAT32_DIGITS)


def resolution(series: Series) -> float:
    """A unit in the last decimal place that the figure was written with."""
    exponents = [Decimal(repr(value)).as_tuple().exponent for value in _values(series)]
    return float(10.0 ** min((int(exponent) for exponent in exponents), default=0))


def _values(series: Series) -> list[float]:
    values = [value for point in series.points for value in (point.value, point.reference)]
    return [value for value in values if math.isfinite(value)]


def coarse(compared: Sequence[Series]) -> str:
    """The figures that are written with too few digits to compare; empty if there is none."""
    too_coarse = [
        f"{series.name} is written in steps of {resolution(series):.0e}"
        for series in compared
        if resolution(series) > ULPS[series.name] * ulp(series)
    ]
    hint = "a smaller difference cannot be seen; let the trainer write more digits"
    return f"{', '.join(too_coarse)}: {hint}" if too_coarse else ""
