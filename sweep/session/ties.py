"""Which cases of a sweep are started once more, to settle a tie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sweep.case.planned import Planned
from sweep.checks import Context, ties
from sweep.schema import ReplayConf


def to_settle(planned: Sequence[Planned], context: Context) -> list[Planned]:
    """The cases, with whose choices to replay; `context` has the facts of the sweep."""
    tied = []
    for case in planned:
        own = context.sweep.get(case.case.id)
        tie = ties.unsettled(own, context) if own else None
        if tie is not None:
            replay = ReplayConf(case_id=tie.reference.case.id, below=tie.below)
            tied.append(replace(case, settings=replace(case.settings, replay=replay)))
    return tied
