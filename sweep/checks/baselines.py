"""The earlier runs of the same case that it is compared with: the last good one, and a pinned one.

A baseline that moves every night hides a slow drift; one that is pinned does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sweep import provenance
from sweep.checks.base import Context
from sweep.facts import Facts

LABELS = ("scale", "dtype", "device", "seed", "trainer")  # that an id need not tell


@dataclass(frozen=True)
class Baseline:
    """An earlier run of a case."""

    kind: str  # last good, pinned, or clean: the same case without the fault planted in it
    facts: Facts

    @property
    def name(self) -> str:
        """How a finding calls it."""
        return f"the {self.kind} sweep {self.facts.sweep_id}"

    def unlike(self, facts: Facts) -> str:
        """What makes it another case under the same id: `device cpu > cuda`; empty if nothing."""
        pairs = ((name, getattr(self.facts.case, name), getattr(facts.case, name))
                 for name in LABELS)  # fmt: skip
        return ", ".join(f"{name} {before} > {now}" for name, before, now in pairs if before != now)

    def moved(self, facts: Facts) -> str:
        """What of the environment is another since then, said after a comparison."""
        said = provenance.moved(self.facts.environment, facts.environment)
        return f"since then: {said}" if said else "nothing moved since then"

    def moved_libraries(self, facts: Facts) -> str:
        """The libraries whose version is another: with them, figures may move by nobody's fault."""
        names = provenance.LIBRARIES
        return provenance.moved(self.facts.environment, facts.environment, names)


def of(facts: Facts, context: Context) -> Iterator[Baseline]:
    """Those that there are; a sweep that is both is the last good one."""
    if facts.case.fault is not None:
        clean = context.sweep.get(facts.case.clean_id)
        if clean is not None:
            yield Baseline("clean", clean)
        return
    last, pinned = context.last_good.get(facts.case.id), context.pinned.get(facts.case.id)
    if last is not None:
        yield Baseline("last good", last)
    if pinned is not None and (last is None or pinned.sweep_id != last.sweep_id):
        yield Baseline("pinned", pinned)
