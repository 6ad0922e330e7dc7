"""Where two cases differ, which of the two the others agree with."""

from __future__ import annotations

from dataclasses import dataclass

from sweep.checks import peers, ties
from sweep.checks.base import Context, Outcome
from sweep.checks.thresholds import Table
from sweep.facts import Facts

WITNESSES = 8  # other cases that are asked, at most


@dataclass(frozen=True)
class Sides:
    """Two cases that differ, and the others that agree with one of the two alone."""

    facts: Facts
    reference: Facts
    ours: list[str]
    theirs: list[str]

    @classmethod
    def of(cls, facts: Facts, reference: Facts, context: Context) -> Sides:
        """Ask those of their peers that trained to the end."""
        both = (facts.case.id, reference.case.id)
        others = peers.peers(facts, context.sweep)
        asked = [peer for peer in others if peer.case.id not in both and peers.is_whole(peer)]
        ours: list[str] = []
        theirs: list[str] = []
        for peer in asked[:WITNESSES]:
            with_us, with_them = (
                _agree(facts, peer, context.limits),
                _agree(reference, peer, context.limits),
            )
            if with_us != with_them:
                (ours if with_us else theirs).append(peer.case.id)
        return cls(facts, reference, ours, theirs)

    @property
    def odd(self) -> Facts | None:
        """The one that fewer agree with; None where as many do."""
        if len(self.ours) == len(self.theirs):
            return None
        return self.reference if len(self.ours) > len(self.theirs) else self.facts

    def __str__(self) -> str:
        if self.odd is None:
            names = f"{self.facts.case.id} or {self.reference.case.id}"
            return f"no other case tells which of the two is wrong, {names}"
        right = self.facts if self.odd is self.reference else self.reference
        agreeing = self.ours if self.odd is self.reference else self.theirs
        return (
            f"{', '.join(agreeing)} agree with {right.case.id}: {self.odd.case.id} is the odd one"
        )


def _agree(facts: Facts, other: Facts, limits: Table) -> bool:
    return ties.agreed(facts, other, limits)[1] is Outcome.PASS
