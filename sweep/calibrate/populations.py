"""Facts of correct and of broken runs -> how far each is from what it must equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from sweep.calibrate.rule import FLOAT32_EPS, Delta, Population
from sweep.checks import export, oracle, peers, resume
from sweep.checks.comparison import Comparison
from sweep.checks.differences import Series, in_common, places_apart
from sweep.checks.thresholds import Table
from sweep.facts import Facts

Plan = Mapping[str, Sequence[str] | Mapping[str, Sequence[str]]]
"""`check.figure` -> the faults that the figure is to show; by dtype where rounding hides some."""
CHOICES = "choices"
"""How many places of the batch have tokens of another expert or key, at the first such step."""


@dataclass(frozen=True)
class Measured:
    """How far a case is, at its farthest step and on average, and the least that could be seen.

    A count has no average: None.
    """

    largest: float
    floor: float
    mean: float | None = None
    mean_floor: float = 0.0


def populations(every: Mapping[str, Facts], plan: Plan, limits: Table) -> list[Population]:
    """Those of each figure of the plan, and of its mean, on each device and dtype there is.

    A figure is left out where only another kind has runs of it, and never altogether.
    """
    kinds = dict.fromkeys((facts.case.device, facts.case.dtype) for facts in every.values())
    measured_populations: list[Population] = []
    for figure, faults in plan.items():
        # of one parameter group each, which the figure leaves to them
        own = [name.partition(".")[2] for name in plan if name.startswith(f"{figure}_")]
        of_kinds = [
            list(of_figure(every, kind, figure, shown(faults, kind[1]), limits, own))
            for kind in kinds
        ]
        with_runs = [
            those
            for those in of_kinds
            if any(population.correct or population.broken for population in those)
        ]
        measured_populations.extend(chain.from_iterable(with_runs or of_kinds[:1]))
    return measured_populations


def shown(faults: Sequence[str] | Mapping[str, Sequence[str]], dtype: str) -> Sequence[str]:
    """The faults that a figure is to show in that dtype."""
    return faults.get(dtype, ()) if isinstance(faults, Mapping) else faults


def of_figure(
    every: Mapping[str, Facts], kind: tuple[str, str], name: str, faults: Sequence[str],
    limits: Table, own: Sequence[str] = (),
) -> Iterator[Population]:  # fmt: skip
    """The deltas of `check.figure`: of clean cases, and of those with one of the faults.

    `own`: figures of one parameter group each, which `check.figure` does not count.
    """
    check, _, figure = name.partition(".")
    seen = [
        (facts, measure)
        for facts in every.values()
        if (facts.case.device, facts.case.dtype) == kind and _counts(facts, faults)
        if (measure := measured(check, figure, facts, every, limits, own)) is not None
    ]
    yield _population(
        (check, figure, *kind),
        [(facts, measure.largest) for facts, measure in seen],
        [measure.floor for facts, measure in seen if facts.case.fault is None],
    )
    means = [(facts, measure.mean) for facts, measure in seen if measure.mean is not None]
    if means or figure != CHOICES:
        floors = [measure.mean_floor for facts, measure in seen if facts.case.fault is None]
        yield _population((check, figure, *kind), means, floors, is_mean=True)


def _counts(facts: Facts, faults: Sequence[str]) -> bool:
    """A case without a fault, or with one that the figure is to show."""
    return facts.case.fault is None or facts.case.fault.partition(":")[0] in faults


def _population(
    name: tuple[str, str, str, str], sizes: Sequence[tuple[Facts, float]], floors: Sequence[float],
    is_mean: bool = False,
) -> Population:  # fmt: skip
    deltas = [Delta(facts.case.id, size, facts.case.fault) for facts, size in sizes]
    correct = [delta for delta in deltas if delta.fault is None]
    broken = [delta for delta in deltas if delta.fault is not None]
    return Population(*name, correct, broken, max(floors, default=0.0), is_mean)


def measured(
    check: str, figure: str, facts: Facts, every: Mapping[str, Facts], limits: Table,
    own: Sequence[str] = (),
) -> Measured | None:  # fmt: skip
    """How far a case is from what it must equal; None where there is nothing to compare."""
    if figure == CHOICES:
        return _choices(beside(check, facts, every, limits))
    compared = [
        series for series in compare(check, facts, every, limits) if belongs(series, figure, own)
    ]
    if not compared:
        return None
    return Measured(
        largest=max(series.largest for series in compared),
        floor=max(map(resolution, compared)),
        mean=max(abs(series.mean) for series in compared),
        mean_floor=max(resolution(series) / len(series.points) for series in compared),
    )


def _choices(compared: Comparison | None) -> Measured | None:
    """None as well where neither of the two reports choices: it has none."""
    if compared is None or not any(
        step.choices_by_place for pair in compared.pairs for step in pair
    ):
        return None
    return Measured(float(places_apart(compared.after[0]) if compared.after else 0), floor=1.0)


def beside(
    check: str, facts: Facts, every: Mapping[str, Facts], limits: Table
) -> Comparison | None:
    """A case compared with its reference in the sweep; None if it is the reference itself."""
    candidates = filter(peers.is_whole, peers.candidates(facts, every))
    reference = next(iter(candidates), None)
    if reference is None or facts.case.id == reference.case.id:
        return None
    return Comparison(facts, reference, reference.case.id, check, limits)


def compare(check: str, facts: Facts, every: Mapping[str, Facts], limits: Table) -> list[Series]:
    """The figures of a case against what they must equal, as that check compares them."""
    if check == "resume":
        return list(_resumed(facts))
    if check == "oracle":
        return oracle.series_of(facts, limits)
    if check == "export":
        return list(filter(None, [export.series_of(facts)]))
    compared = beside(check, facts, every, limits)
    return compared.series if compared else []


def belongs(series: Series, figure: str, own: Sequence[str] = ()) -> bool:
    """Whether a series is of the figure: `grad_norm` is that of each parameter group as well.

    `grad_norm_embedding` is that of one group alone. Where it is among `own`, `grad_norm` is that
    of the others, as conf/thresholds.yaml is read.
    """
    total, _, group = series.name.partition(" of ")
    of_group = f"{total}_{group}"
    return figure == of_group or (figure == total and of_group not in own)


def resolution(series: Series) -> float:
    """The smallest difference of two such figures that float32 can hold, as they are compared."""
    if series.is_relative:
        return FLOAT32_EPS
    return FLOAT32_EPS * max(abs(point.reference) for point in series.points)


def _resumed(facts: Facts) -> Iterator[Series]:
    if not facts.asked.get("resume_at") or len(facts.own_launches) < 2:
        return iter(())
    whole, *resumed = facts.own_launches
    pairs = [in_common(launch.metrics.steps, whole.metrics.steps) for launch in resumed]
    return chain.from_iterable(resume.figures(steps) for steps in pairs if steps)
