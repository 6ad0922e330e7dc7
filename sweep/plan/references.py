"""What the cases of a plan are compared with, and the cases to add where that is nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from sweep.case.identity import identity_of
from sweep.case.planned import Planned
from sweep.checks import peers
from sweep.facts import Facts, asked_of

Plan = Callable[[Sequence[str]], Planned]
"""Overrides -> the case that they compose, under the id that it has in this sweep."""


def without(planned: Sequence[Planned]) -> list[Planned]:
    """The cases that would be compared with nothing."""
    facts = {case.case.id: as_facts(case) for case in planned if case.unavailable is None}
    return [
        case
        for case in planned
        if (own := facts.get(case.case.id)) is not None
        and not peers.axes(own, facts)
        and not peers.referring(own, facts)
    ]


def added(planned: Sequence[Planned], compose: Plan) -> list[Planned]:
    """The plan with a plainer case for each that has none, as far as that can run here."""
    cases = {case.case.id: case for case in planned}
    for lone in without(planned):
        references = map(compose, _plainer(lone))
        able = next((reference for reference in references if reference.unavailable is None), None)
        if able is not None:
            cases.setdefault(able.case.id, able)
    return list(cases.values())


def _plainer(planned: Planned) -> Iterator[list[str]]:
    """The same in one process; in its own layout, without the feature, or without the fault."""
    if planned.case.world_size > 1:
        yield _replaced(planned, layout="single", fault="null")
    if planned.case.feature not in peers.BASE:
        yield _replaced(planned, feature="none", fault="null")
    if planned.case.fault is not None:
        yield _replaced(planned, fault="null")


def _replaced(planned: Planned, **values: str) -> list[str]:
    kept = [
        word for word in planned.overrides if word.partition("=")[0].partition(".")[0] not in values
    ]
    if planned.case.fault is None:
        values.pop("fault", None)
    return [*kept, *(f"{key}={value}" for key, value in values.items())]


def as_facts(planned: Planned) -> Facts:
    """A case that has not run, as checks see it."""
    return Facts(
        sweep_id="", case=planned.case, started=0.0, seconds=0.0, environment={},
        asked=asked_of(planned.settings), identity=identity_of(planned.settings),
    )  # fmt: skip
