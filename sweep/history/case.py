"""One case over the nights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from sweep import provenance
from sweep.history.trend import FEW, Trend
from sweep.judge import Verdict
from sweep.store.nights import CaseNight, Night

SAME = (
    "git_sha",
    "git_dirty",
    "trainer_code",
    "sweep_code",
    "tiny_models_code",
    "thresholds",
    "known_failures",
    "python",
    "device",
    "trainer-sweep",
    *provenance.LIBRARIES,
)
"""Commit and versions, not the host: of two nights with the same the verdicts should be alike."""
RULES = ("thresholds",)
BAD = frozenset(verdict.value for verdict in Verdict if not verdict.good)
SLOWER = 1.3  # times the median


@dataclass(frozen=True)
class Place:
    """The case in one night; `found` is None where it was planned and has no result."""

    night: Night
    found: CaseNight | None

    @property
    def verdict(self) -> str:
        """The verdict; empty without a result."""
        return self.found.verdict if self.found else ""


@dataclass(frozen=True)
class Change:
    """A verdict that is another than the night before, and what moved between the two."""

    before: Place
    now: Place

    @property
    def verdicts(self) -> str:
        """`passed > failed`."""
        return f"{self.before.verdict} > {self.now.verdict}"

    @property
    def moved(self) -> list[str]:
        """Commit, dependencies, host, thresholds, model and settings that differ."""
        old, new = self.before.found, self.now.found
        if old is None or new is None or not old.about or not new.about:
            return []
        pairs = {
            "model": (old.checkpoint, new.checkpoint),
            "settings": (old.settings, new.settings),
        }
        more = [f"{name} {a} > {b}" for name, (a, b) in pairs.items() if a and b and a != b]
        return provenance.moved(old.about, new.about) + more

    @property
    def commits(self) -> tuple[str, str] | None:
        """The commits before and after; None if it is the same one, or one is unknown."""
        both = [
            place.found.about.get("git_sha", "") if place.found else ""
            for place in (self.before, self.now)
        ]
        old, new = both
        known = all(len(sha) == provenance.SHA_LENGTH for sha in both)
        return (old, new) if known and old != new else None


@dataclass(frozen=True)
class CaseHistory:
    """A case over the nights that have it, the oldest first; a night at least."""

    case_id: str
    places: Sequence[Place]

    @cached_property
    def ran(self) -> list[Place]:
        """The nights with a result."""
        return [place for place in self.places if place.found]

    @property
    def verdict(self) -> str:
        """Of the last night with a result; empty if there is none."""
        return self.ran[-1].verdict if self.ran else ""

    @cached_property
    def streak(self) -> list[Place]:
        """The last nights that have the verdict of the last."""
        return self._last_nights(lambda verdict: verdict == self.verdict)

    @cached_property
    def failing(self) -> list[Place]:
        """The last nights in which it failed, in whatever way; empty if it does not."""
        return self._last_nights(BAD.__contains__)

    @property
    def last_good(self) -> Place | None:
        """The last night in which it passed."""
        passed = (place for place in reversed(self.ran) if place.verdict == Verdict.PASSED)
        return next(passed, None)

    @property
    def pass_rate(self) -> float | None:
        """The share of passed among the nights in which it could run; None if it never could."""
        verdicts = [place.verdict for place in self.ran if place.verdict != Verdict.UNAVAILABLE]
        return verdicts.count(Verdict.PASSED) / len(verdicts) if verdicts else None

    @cached_property
    def flakiness(self) -> tuple[int, int]:
        """(verdicts that are others than before at the same commit and versions, how many pairs).

        A night that is `flaky` in itself counts as such a pair.
        """
        last: dict[object, str] = {}
        changed = pairs = 0
        for place in self.ran:
            if place.found is None or place.verdict == Verdict.UNAVAILABLE:
                continue
            key = _same(place.found)
            before = last.get(key)
            is_flaky = place.verdict == Verdict.FLAKY
            pairs += before is not None or is_flaky
            changed += is_flaky or (before is not None and before != place.verdict)
            last[key] = place.verdict
        return changed, pairs

    @cached_property
    def changes(self) -> list[Change]:
        """Every change of the verdict, the oldest first."""
        pairs = zip(self.ran, self.ran[1:], strict=False)
        return [Change(a, b) for a, b in pairs if a.verdict != b.verdict]

    @cached_property
    def trends(self) -> list[Trend]:
        """Of each check that has a margin in the last night, under that night's thresholds."""
        if not self.ran or (last := self.ran[-1].found) is None:
            return []
        rules = _rules(last)
        alike = [place.found for place in self.ran if place.found and _rules(place.found) == rules]
        return [
            Trend(check, [one.margins[check] for one in alike if check in one.margins])
            for check in last.margins
        ]

    @property
    def nearest(self) -> Trend | None:
        """The check that came the nearest to its threshold."""
        return max(self.trends, key=lambda trend: trend.closest, default=None)

    @cached_property
    def seconds(self) -> list[float]:
        """What it took, night by night."""
        taken = [place.found.seconds for place in self.ran if place.found]
        return [seconds for seconds in taken if seconds is not None]

    @property
    def warnings(self) -> list[str]:
        """What is about to fail, and that it got slower."""
        said = [trend.warning for trend in self.trends if trend.warning]
        if len(self.seconds) > FEW and (usual := median(self.seconds[:-1])) > 0:
            ratio = self.seconds[-1] / usual
            if ratio >= SLOWER:
                said.append(f"took {self.seconds[-1]:.0f} s, {ratio:.1f} times the usual")
        return said

    def moved_between(self, before: Place, now: Place) -> list[str]:
        """What moved between two of its nights."""
        return Change(before, now).moved

    def _last_nights(self, is_so: Callable[[str], bool]) -> list[Place]:
        nights: list[Place] = []
        for place in reversed(self.ran):
            if not is_so(place.verdict):
                break
            nights.insert(0, place)
        return nights


def _same(found: CaseNight) -> object:
    about = tuple(found.about.get(name, "") for name in SAME)
    return about, found.settings, found.checkpoint


def _rules(found: CaseNight) -> object:
    return [found.about.get(name, "") for name in RULES], found.settings


def histories(nights: Sequence[Night]) -> list[CaseHistory]:
    """Every case of these sweeps, in the order of the last one that has it."""
    ids: dict[str, None] = {}
    for night in reversed(nights):
        ids.update(dict.fromkeys([*night.cases, *night.missing]))
    return [CaseHistory(case_id, _places(case_id, nights)) for case_id in ids]


def _places(case_id: str, nights: Sequence[Night]) -> list[Place]:
    return [
        Place(night, night.cases.get(case_id))
        for night in nights
        if case_id in night.cases or case_id in night.missing
    ]
