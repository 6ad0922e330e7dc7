"""What is shown of the nights, whatever shows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from sweep.history.case import BAD, CaseHistory, Change, Place, histories
from sweep.history.commits import Commits
from sweep.report.looks import LOOKS
from sweep.store.nights import Night
from sweep.store.past import grouped

NOT_RUN, ABSENT = "·", " "


@dataclass(frozen=True)
class View:
    """The nights of an experiment, the oldest first, and their cases."""

    experiment: str
    nights: Sequence[Sequence[Night]]  # shards of one are together
    cases: Sequence[CaseHistory]
    commits: Commits = field(default_factory=Commits)

    @classmethod
    def of(cls, sweeps: Sequence[Night], commits: Commits | None = None) -> View:
        """Of these sweeps of one experiment, the oldest first; at least one."""
        known = commits or Commits()
        return cls(sweeps[-1].experiment, grouped(sweeps), histories(sweeps), known)

    @property
    def title(self) -> str:
        """`nightly: 30 nights, 2026-11-01 to 2026-11-30`."""
        count = len(self.nights)
        first, last = (day(night[0].started) for night in (self.nights[0], self.nights[-1]))
        span = first if first == last else f"{first} to {last}"
        return f"{self.experiment}: {count} night{'' if count == 1 else 's'}, {span}"

    @property
    def months_matter(self) -> bool:
        """Whether a day has to be given with its year."""
        return self.nights[-1][0].started - self.nights[0][0].started > 300 * 86_400

    @cached_property
    def _columns(self) -> Mapping[str, int]:
        return {
            sweep.sweep_id: number for number, night in enumerate(self.nights) for sweep in night
        }

    def cells(self, case: CaseHistory) -> list[Place | None]:
        """The case in each night; None where that has it not."""
        cells: list[Place | None] = [None] * len(self.nights)
        for place in case.places:
            cells[self._columns[place.night.sweep_id]] = place
        return cells

    def line(self, case: CaseHistory, last: int) -> str:
        """A symbol a night."""
        return "".join(map(symbol, self.cells(case)[-last:]))

    def since(self, case: CaseHistory) -> str:
        """`11-27 (4)`: the first night of its verdict, and how many there are."""
        if not case.streak:
            return "-"
        when = day(case.streak[0].night.started)
        open_start = "before " if len(case.streak) == len(case.ran) > 1 else ""
        return f"{open_start}{when if self.months_matter else when[5:]} ({len(case.streak)})"

    def change_of(self, case: CaseHistory) -> Change | None:
        """The last change of its verdict."""
        return case.changes[-1] if case.changes else None

    def of_note(self) -> Iterator[CaseHistory]:
        """Cases that fail, changed or are warned of."""
        for case in self.cases:
            if case.verdict in BAD or case.changes or case.warnings:
                yield case

    def said(self, change: Change) -> list[str]:
        """What moved with a change, commits last; one line that nothing did."""
        lines = list(change.moved)
        if change.commits:
            lines += self.commits.between(*change.commits)
        return lines or ["nothing that is recorded moved"]


def headline(view: View, case: CaseHistory) -> str:
    """`llama-single-none: failed since 2026-11-27 (4 nights; passed before)`."""
    if not case.streak:
        return f"{case.case_id}: never ran"
    count = len(case.streak)
    nights = f"{count} night{'' if count == 1 else 's'}"
    change = view.change_of(case)
    before = f"; {change.before.verdict} before" if change else "; as far back as is shown"
    verdict = f"{case.verdict} since {day(case.streak[0].night.started)} ({nights}{before})"
    failing = case.ran[-1].found.failing if case.ran[-1].found else ()
    checks = f": {', '.join(failing)}" if case.verdict in BAD and failing else ""
    return f"{case.case_id}: {verdict}{checks}"


def symbol(place: Place | None) -> str:
    """The verdict's symbol; NOT_RUN of a case without a result, ABSENT of one not asked for."""
    if place is None:
        return ABSENT
    return SYMBOLS.get(place.verdict, NOT_RUN)


def day(seconds: float) -> str:
    """`2026-11-27`, in UTC as the ids of sweeps are."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def rate(case: CaseHistory) -> str:
    """`93%`."""
    return "-" if case.pass_rate is None else f"{100 * case.pass_rate:.0f}%"


def flaky(case: CaseHistory) -> str:
    """`2 of 9`: changes at the same commit and versions; `-` where no two nights have the same."""
    changed, pairs = case.flakiness
    return f"{changed} of {pairs}" if pairs else "-"


def nearest(case: CaseHistory) -> str:
    """`parity 0.12`."""
    return f"{case.nearest.check} {case.nearest.closest:.2g}" if case.nearest else "-"


SYMBOLS = {verdict.value: look.symbol for verdict, look in LOOKS.items()}
