"""What the nights before say of the cases of a sweep, as far as its reports tell it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweep.judge import Verdict

GOOD = frozenset(verdict.value for verdict in Verdict if verdict.ran_well)


@dataclass(frozen=True)
class Failing:
    """Since when a case fails, in whatever way."""

    since: str  # the day of the first night, 2026-11-27
    nights: int
    is_open: bool = False  # it failed in every night that is known, of several
    last_good: str = ""  # the id of the last sweep in which it passed; empty if none is known
    moved: Sequence[str] = ()  # between that one and the first that failed

    @property
    def words(self) -> str:
        """`since 2026-11-27, 4 nights`."""
        count = f"{self.nights} night{'' if self.nights == 1 else 's'}"
        return f"{'since before' if self.is_open else 'since'} {self.since}, {count}"


@dataclass(frozen=True)
class Past:
    """Of the cases that fail since when, and the verdict of each in the night before."""

    failing: Mapping[str, Failing] = field(default_factory=dict)  # by case id
    before: Mapping[str, str] = field(default_factory=dict)  # case id -> verdict
    page: str = ""  # the file beside the report that has all nights; empty if there is none

    def has_regressed(self, case_id: str) -> bool:
        """Whether a case that fails passed, or failed as known, in the night before."""
        return self.before.get(case_id, "") in GOOD


NO_PAST = Past()
