"""Facts of correct and of broken runs -> how far each is from what it must equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from sweep.calibrate.rule import FLOAT32_EPS, Delta, Population
from sweep.checks import peers, resume
from sweep.checks.comparison import Comparison
from sweep.checks.differences import Series, in_common
from sweep.facts import Facts

Plan = Mapping[str, Sequence[str]]
"""`check.figure` -> the faults that the figure is to show."""


def populations(every: Mapping[str, Facts], plan: Plan) -> list[Population]:
    """A population for each figure of the plan and each device and dtype that there are."""
    kinds = dict.fromkeys((one.case.device, one.case.dtype) for one in every.values())
    return [
        population(every, kind, figure, faults) for kind in kinds for figure, faults in plan.items()
    ]


def population(
    every: Mapping[str, Facts], kind: tuple[str, str], name: str, faults: Sequence[str]
) -> Population:
    """The deltas of `check.figure`: of clean cases, and of those with one of the faults."""
    check, _, figure = name.partition(".")
    correct, broken, floor = [], [], 0.0
    for facts in every.values():
        fault = facts.case.fault
        if (facts.case.device, facts.case.dtype) != kind:
            continue
        if fault is not None and fault.partition(":")[0] not in faults:
            continue
        compared = [one for one in compare(check, facts, every) if belongs(one, figure)]
        if not compared:
            continue
        delta = Delta(facts.case.id, max(one.largest for one in compared), fault)
        if fault is None:
            correct.append(delta)
            floor = max(floor, *map(resolution, compared))
        else:
            broken.append(delta)
    return Population(check, figure, *kind, correct, broken, floor)


def compare(check: str, facts: Facts, every: Mapping[str, Facts]) -> list[Series]:
    """The figures of a case beside what they must equal, as that check compares them."""
    if check == "resume":
        return list(_resumed(facts))
    candidates = filter(peers.is_whole, peers.candidates(facts, every))
    reference = next(iter(candidates), None)
    if reference is None or facts.case.id == reference.case.id:
        return []
    return Comparison(facts, reference, reference.case.id, check).series


def belongs(one: Series, figure: str) -> bool:
    """Whether a series is of the figure: `grad_norm` is that of each parameter group as well."""
    return one.name == figure or one.name.startswith(f"{figure} of ")


def resolution(one: Series) -> float:
    """The smallest difference of two such figures that float32 can hold, as they are compared."""
    if one.is_relative:
        return FLOAT32_EPS
    return FLOAT32_EPS * max(abs(point.reference) for point in one.points)


def _resumed(facts: Facts) -> Iterator[Series]:
    if not facts.asked.get("resume_at") or len(facts.launches) < 2:
        return iter(())
    whole, *resumed = facts.launches
    pairs = [in_common(one.metrics.steps, whole.metrics.steps) for one in resumed]
    return chain.from_iterable(resume.figures(found) for found in pairs if found)
