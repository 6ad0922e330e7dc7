"""What a case takes: step time, time to the first step, memory, against the baseline.

Reported; fails only where conf/thresholds.yaml sets a limit: on the ratio to the baseline, and on
how much of its peak the memory grows by in each step, which needs no baseline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from sweep.checks import baselines
from sweep.checks.base import Context, Finding, Outcome
from sweep.checks.baselines import Baseline
from sweep.checks.thresholds import Table
from sweep.facts import Facts, Step

WARM_UP = 2  # steps that allocate, compile and recompile
FEW = 3  # increments of the memory, below which nothing is said of its growth
NOTABLE = 1.5  # a ratio this far from 1 is told, in either direction


@dataclass(frozen=True)
class Figure:
    """Something a case takes."""

    name: str
    said: str
    of: Callable[[Facts], float | None]
    unit: str


def check(facts: Facts, context: Context) -> Finding | None:
    """Figures, ratios and what is beyond a limit; None where the trainer reports no figure."""
    metrics = {
        f"cost/{figure.name}": value
        for figure in FIGURES
        if (value := figure.of(facts)) is not None
    }
    growths = {name: value for name, of in GROWTHS.items() if (value := of(facts)) is not None}
    metrics |= {f"cost/{name}": value for name, value in growths.items()}
    if not metrics:
        return None
    baseline = next(
        (baseline for baseline in baselines.of(facts, context) if not baseline.unlike(facts)), None
    )
    beyond_limits = list(_grows(facts, growths, context.limits))
    notes: list[str] = []
    times: dict[str, float] = {}
    if baseline is not None:
        times = ratios(facts, baseline)
        metrics |= {f"cost/{name}_ratio": ratio for name, ratio in times.items()}
        slower = list(beyond(facts, baseline, context.limits))
        told = list(_notable(facts, baseline))
        beyond_limits += [*slower, baseline.moved(facts)] if slower else []
        notes += [*told, baseline.moved(facts)] if told else []
    return Finding(
        check="cost",
        outcome=Outcome.FAIL if beyond_limits else Outcome.PASS,
        message="; ".join(beyond_limits or notes),
        metrics=metrics,
        folder=facts.launches[0].directory if beyond_limits else "",
        margin=_margin(facts, growths | times, context.limits),
    )


def _margin(facts: Facts, figures: Mapping[str, float], table: Table) -> float | None:
    """How many times its limit the farthest figure is; None where none has a limit."""
    limits = {name: table.configured("cost", name, facts.case) for name in figures}
    return max(
        (figures[name] / limit.value for name, limit in limits.items() if limit), default=None
    )


def step_seconds(facts: Facts) -> float | None:
    """The median time of a step, the first ones left out."""
    taken = [step.step_seconds for step in _warm(facts) if step.step_seconds is not None]
    return median(taken) if taken else None


def step_cpu_seconds(facts: Facts) -> float | None:
    """The least work of a step, which other programs on the machine lengthen the least."""
    taken = [step.step_cpu_seconds for step in _warm(facts) if step.step_cpu_seconds is not None]
    return min(taken, default=None)


def first_step_seconds(facts: Facts) -> float | None:
    """From the start to the first step reported."""
    return facts.launches[0].first_step_seconds if facts.launches else None


def peak_memory_gib(facts: Facts) -> float | None:
    """Of the rank that takes the most."""
    peaks = [step.peak_memory_gib for step in facts.steps if step.peak_memory_gib is not None]
    return max(peaks) if peaks else None


def memory_growth(facts: Facts) -> float | None:
    """The share of its peak by which the memory of the worst rank grows in a step.

    The least over the steps after the first, since a leak grows in each of them: allocators that
    are still settling take more in some steps, and little or nothing in others.
    """
    rises = _rises(facts, 1)
    return min(rises) if len(rises) >= FEW else None


def settled_growth(facts: Facts) -> float | None:
    """The same once allocators have settled, in the second half of a longer run: far less of it.

    The lower quartile, since a leak grows in nearly every step.
    """
    rises = _rises(facts, len(facts.steps) // 2)
    return quantiles(rises, n=4, method="inclusive")[0] if len(rises) > FEW else None


def _rises(facts: Facts, first: int) -> list[float]:
    """By which share of the last peak the peak rises from step to step, from index `first` on.

    None where a step was profiled: what the profiler takes is in the peaks from there on.
    """
    peaks = [
        step.peak_memory_gib for step in facts.steps[first:] if step.peak_memory_gib is not None
    ]
    if not peaks or peaks[-1] <= 0 or operators(facts):
        return []
    return [(after - before) / peaks[-1] for before, after in pairwise(peaks)]


OPERATORS = "operators"


def operators(facts: Facts) -> Counter[str]:
    """How often each operator ran in the step that was profiled; empty where none was."""
    return Counter(next((dict(step.operators) for step in facts.steps if step.operators), {}))


def operator_count(facts: Facts) -> float | None:
    """Of all operators: exact, where a time is lengthened by whatever else a machine does."""
    return float(operators(facts).total()) or None


FIGURES = (
    Figure("step_seconds", "the time of a step", step_seconds, "s"),
    Figure("step_cpu_seconds", "the work of a step", step_cpu_seconds, "CPU s"),
    Figure("first_step_seconds", "the time to the first step", first_step_seconds, "s"),
    Figure("peak_memory_gib", "the peak memory", peak_memory_gib, "GiB"),
    Figure(OPERATORS, "the count of operators in a step", operator_count, "operators"),
)

GROWTHS = {"memory_growth": memory_growth, "settled_growth": settled_growth}
LIMITED = (*(figure.name for figure in FIGURES), *GROWTHS)
"""What may have a limit."""


def _warm(facts: Facts) -> list[Step]:
    return facts.steps[WARM_UP:] or facts.steps[1:]


def ratios(facts: Facts, baseline: Baseline) -> dict[str, float]:
    """Each figure that both have, as a ratio to the baseline's; none on another kind of device."""
    if baseline.unlike(facts):
        return {}
    values = ((figure.name, figure.of(facts), figure.of(baseline.facts)) for figure in FIGURES)
    return {
        name: ours / theirs
        for name, ours, theirs in values
        if ours is not None and theirs and math.isfinite(theirs)
    }


def beyond(facts: Facts, baseline: Baseline, table: Table) -> Iterator[str]:
    """The ratios that are beyond a limit that is configured."""
    of_baseline = ratios(facts, baseline)
    for figure in FIGURES:
        limit = table.configured("cost", figure.name, facts.case)
        # `not <=`: a time that is NaN is within no limit
        if (
            limit is not None
            and figure.name in of_baseline
            and not of_baseline[figure.name] <= limit.value
        ):
            said = _said(figure, facts, baseline, of_baseline[figure.name])
            if figure.name == OPERATORS:
                said += _more(operators(facts), operators(baseline.facts))
            yield f"{said}; limit {limit.value:g} times ({limit.source})"


def _more(ours: Counter[str], theirs: Counter[str]) -> str:
    """Of which operators there are the most more."""
    more = [
        f"{name} {ours[name]}, not {theirs[name]}" for name, _ in (ours - theirs).most_common(3)
    ]
    return f" ({'; '.join(more)})" if more else ""


def _notable(facts: Facts, baseline: Baseline) -> Iterator[str]:
    of_baseline = ratios(facts, baseline)
    for figure in FIGURES:
        ratio = of_baseline.get(figure.name, 1.0)
        if ratio > NOTABLE or ratio < 1 / NOTABLE:
            yield _said(figure, facts, baseline, ratio)


def _said(figure: Figure, facts: Facts, baseline: Baseline, ratio: float) -> str:
    return (
        f"{figure.said} is {figure.of(facts):.3g} {figure.unit},"
        f" {figure.of(baseline.facts):.3g} {figure.unit} in {baseline.name}: {ratio:.2f} times"
    )


def _grows(facts: Facts, growths: Mapping[str, float], table: Table) -> Iterator[str]:
    for name, growth in growths.items():
        limit = table.configured("cost", name, facts.case)
        if limit is None or growth <= limit.value:
            continue
        peaks = [step.peak_memory_gib for step in facts.steps if step.peak_memory_gib is not None]
        yield (
            f"steps {facts.steps[1].step} to {facts.steps[-1].step}: the memory of the worst rank"
            f" grows by {growth:.1%} of its peak a step, from {peaks[1]:.3f} to {peaks[-1]:.3f}"
            f" GiB; limit {limit.value:.1%} ({limit.source})"
        )
        return
