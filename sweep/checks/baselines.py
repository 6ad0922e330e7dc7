"""The earlier runs of the same case that it is compared with: the last good one, and a pinned one.

A baseline that moves every night hides a slow drift; one that is pinned does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sweep.checks import comparable
from sweep.checks.base import Context
from sweep.facts import Facts

CLEAN = "clean"


@dataclass(frozen=True)
class Baseline:
    """An earlier run of a case."""

    kind: str  # last good, pinned, or clean: the same case without the fault planted in it
    facts: Facts

    @property
    def name(self) -> str:
        """How a finding calls it."""
        return f"the {self.kind} sweep {self.facts.sweep_id}"

    def unlike(self, facts: Facts, free: comparable.Axes = ()) -> str:
        """Why it cannot be compared: `optim.lr 0.0001 > 0.001`; empty if it can."""
        planted = ("fault", *comparable.PRODUCED) if self.kind == CLEAN else ()
        return comparable.unlike(self.facts, facts, (*planted, *free))

    def moved(self, facts: Facts) -> str:
        """What of the provenance differs, said after a comparison."""
        moved = comparable.moved(self.facts, facts)
        return f"moved: {', '.join(moved) or 'nothing'}"


def of(facts: Facts, context: Context) -> Iterator[Baseline]:
    """Those that there are; a sweep that is both is the last good one."""
    if facts.case.fault is not None:
        clean = context.sweep.get(facts.case.clean_id)
        if clean is not None:
            yield Baseline(CLEAN, clean)
        return
    last, pinned = context.last_good.get(facts.case.id), context.pinned.get(facts.case.id)
    if last is not None:
        yield Baseline("last good", last)
    if pinned is not None and (last is None or pinned.sweep_id != last.sweep_id):
        yield Baseline("pinned", pinned)
