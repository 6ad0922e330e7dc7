"""Which cases of a sweep are started once more, to settle a tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sweep.case.planned import Planned
from sweep.checks import ties
from sweep.report import Result
from sweep.schema import ReplayConf


def to_settle(planned: Sequence[Planned], results: Sequence[Result]) -> list[Planned]:
    """The cases, with whose choices to replay."""
    sweep = {one.case.id: one.facts for one in results if one.facts and not one.interrupted}
    found = []
    for one in planned:
        own = sweep.get(one.case.id)
        tie = ties.unsettled(own, sweep) if own else None
        if tie is not None:
            replay = ReplayConf(case_id=tie.reference.case.id, below=tie.below)
            found.append(replace(one, settings=replace(one.settings, replay=replay)))
    return found
