"""A case in two sweeps: what changed, and what of it is a regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sweep.checks import Finding, Outcome, comparable, cost, drift
from sweep.checks.baselines import Baseline
from sweep.checks.comparison import Comparison
from sweep.checks.graph_breaks import breaks_of
from sweep.checks.thresholds import Table
from sweep.facts import Facts, Happening
from sweep.judge import Verdict
from sweep.store import CaseRecord


@dataclass(frozen=True)
class Row:
    """A case that both sweeps have."""

    base: CaseRecord
    head: CaseRecord
    limits: Table

    @property
    def case_id(self) -> str:
        """The case's id."""
        return self.head.case_id

    @property
    def verdicts(self) -> str:
        """`passed`, or `passed > failed` if it changed."""
        before, after = verdict_of(self.base), verdict_of(self.head)
        return after if before == after else f"{before} > {after}"

    @cached_property
    def facts(self) -> tuple[Facts, Facts] | None:
        """The facts of base and head; None if one of them never ran."""
        base, head = self.base.facts, self.head.facts
        return (base, head) if base is not None and head is not None else None

    @cached_property
    def unlike(self) -> str:
        """Which settings are known to differ, so that nothing is a regression."""
        if self.facts is None:
            return comparable.known_by_tags(self.base.tags, self.head.tags)
        return comparable.known_differences(*self.facts, free=comparable.PRODUCED)

    @cached_property
    def drift(self) -> Finding | None:
        """The finding of check drift against the base; None if one of the two never ran."""
        if self.facts is None:
            return None
        return drift.against(Baseline("base", self.facts[0]), self.facts[1], self.limits)

    @property
    def is_fix(self) -> bool:
        """Whether a known failure is gone, so that the figures may differ."""
        healed = (Verdict.PASSED, Verdict.FIXED)
        return verdict_of(self.base) == Verdict.KNOWN and verdict_of(self.head) in healed

    @cached_property
    def ratios(self) -> dict[str, float]:
        """Step time, time to the first step and peak memory, head to base."""
        return cost.ratios(self.facts[1], Baseline("base", self.facts[0])) if self.facts else {}

    @property
    def total_ratio(self) -> float | None:
        """The whole case's time, head to base."""
        if self.facts is None or not self.facts[0].seconds:
            return None
        return self.facts[1].seconds / self.facts[0].seconds

    @cached_property
    def largest(self) -> dict[str, float]:
        """The largest relative difference of loss and grad_norm; empty if not comparable."""
        if self.facts is None:
            return {}
        compared = Comparison(self.facts[1], self.facts[0], self.case_id, "drift", self.limits)
        if compared.other_batch() or comparable.unlike(*self.facts):
            return {}
        return {figure.name: figure.largest for figure in compared.series[:2]}

    @property
    def new_breaks(self) -> list[Happening]:
        """Graph breaks of the head that the base has not."""
        return _only_in(self.facts[1], self.facts[0]) if self.facts else []

    @property
    def gone_breaks(self) -> list[Happening]:
        """Graph breaks of the base that the head has not."""
        return _only_in(self.facts[0], self.facts[1]) if self.facts else []

    def regressions(self) -> Iterator[str]:
        """Yield what got worse; nothing if the settings differ."""
        if self.unlike:
            return
        if is_good(self.base) and not is_good(self.head):
            yield f"{self.verdicts}{_why(self.head)}"
        for graph_break in self.new_breaks:
            yield f"new graph break: {graph_break}"
        if self._has_drifted and self.drift and not self.is_fix:
            yield self.drift.message
        if self.facts is not None:
            yield from cost.beyond(self.facts[1], Baseline("base", self.facts[0]), self.limits)

    def notes(self) -> Iterator[str]:
        """Yield what changed and is not a regression."""
        if verdict_of(self.base) != verdict_of(self.head) and not any(self.regressions()):
            yield f"{self.verdicts}{', which is a fix' if self.is_fix else ''}"
        if self.unlike and self.facts is None:
            yield f"not comparable: {self.unlike}"
        for graph_break in self.gone_breaks:
            yield f"graph break gone: {graph_break}"
        if self.drift and self.drift.message and (self.is_fix or not self._has_drifted):
            yield self.drift.message

    @property
    def _has_drifted(self) -> bool:
        return self.drift is not None and self.drift.outcome is Outcome.FAIL


def pair(
    base: Sequence[CaseRecord], head: Sequence[CaseRecord], limits: Table
) -> tuple[list[Row], list[CaseRecord], list[CaseRecord]]:
    """Cases with a result in both, in the base only, and in the head only."""
    before = {case.case_id: case for case in base if "verdict" in case.tags}
    after = {case.case_id: case for case in head if "verdict" in case.tags}
    rows = [Row(before[name], case, limits) for name, case in after.items() if name in before]
    only_base = [case for name, case in before.items() if name not in after]
    return rows, only_base, [case for name, case in after.items() if name not in before]


def verdict_of(case: CaseRecord) -> str:
    """The verdict of a case that has a result."""
    return case.tags["verdict"]


def is_good(case: CaseRecord) -> bool:
    """Whether the case ran and passed, or failed as known."""
    good = [verdict for verdict in Verdict if verdict.ran_well or verdict is Verdict.FIXED]
    return verdict_of(case) in good  # fixed: it passes, and its known failure can be deleted


def _only_in(facts: Facts, other: Facts) -> list[Happening]:
    known = {graph_break.identity for graph_break in breaks_of(other)}
    return [graph_break for graph_break in breaks_of(facts) if graph_break.identity not in known]


def _why(case: CaseRecord) -> str:
    """The checks that failed, in brackets."""
    bad = (Outcome.FAIL, Outcome.INCONCLUSIVE)
    checks = [
        key.removeprefix("check.")
        for key, value in sorted(case.tags.items())
        if key.startswith("check.") and value in bad
    ]
    return f" ({', '.join(checks)})" if checks else ""
