"""A case in two sweeps: what moved, and what of it is a regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sweep.checks import Finding, Outcome, cost, drift
from sweep.checks.baselines import Baseline
from sweep.checks.comparison import Comparison
from sweep.checks.graph_breaks import breaks_of
from sweep.facts import Facts, Happening
from sweep.judge import Verdict
from sweep.store import CaseRecord

RAN_WELL = (Verdict.PASSED, Verdict.KNOWN)


@dataclass(frozen=True)
class Row:
    """A case that both sweeps have."""

    base: CaseRecord
    head: CaseRecord

    @property
    def case_id(self) -> str:
        """The case's id."""
        return self.head.case_id

    @property
    def verdicts(self) -> str:
        """`passed`, or `passed > failed` where it changed."""
        before, after = verdict_of(self.base), verdict_of(self.head)
        return after if before == after else f"{before} > {after}"

    @cached_property
    def facts(self) -> tuple[Facts, Facts] | None:
        """Of base and head, where both ran."""
        base, head = self.base.facts, self.head.facts
        return (base, head) if base is not None and head is not None else None

    @cached_property
    def drift(self) -> Finding | None:
        """What check drift says with the base as the baseline; None where one of them never ran."""
        return drift.against(Baseline("base", self.facts[0]), self.facts[1]) if self.facts else None

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
        """The largest relative difference of loss and grad_norm; empty where the data differ."""
        if self.facts is None:
            return {}
        compared = Comparison(self.facts[1], self.facts[0], self.base.case_id, "drift")
        if compared.other_batch():
            return {}
        return {one.name: one.largest for one in compared.series[:2]}

    @property
    def new_breaks(self) -> list[Happening]:
        """Graph breaks of the head that the base has not."""
        return _only_in(self.facts[1], self.facts[0]) if self.facts else []

    @property
    def gone_breaks(self) -> list[Happening]:
        """Graph breaks of the base that the head has not."""
        return _only_in(self.facts[0], self.facts[1]) if self.facts else []

    def regressions(self) -> Iterator[str]:
        """What got worse."""
        if is_good(self.base) and not is_good(self.head):
            yield f"{self.verdicts}{_why(self.head)}"
        for one in self.new_breaks:
            yield f"new graph break: {one}"
        if self.drift is not None and self.drift.outcome is Outcome.FAIL:
            yield self.drift.message
        if self.facts is not None:
            yield from cost.beyond(self.facts[1], Baseline("base", self.facts[0]))

    def notes(self) -> Iterator[str]:
        """What changed and is none."""
        if verdict_of(self.base) != verdict_of(self.head) and not any(self.regressions()):
            yield self.verdicts
        for one in self.gone_breaks:
            yield f"graph break gone: {one}"
        if self.drift is not None and self.drift.outcome is not Outcome.FAIL and self.drift.message:
            yield self.drift.message


def pair(
    base: Sequence[CaseRecord], head: Sequence[CaseRecord]
) -> tuple[list[Row], list[CaseRecord], list[CaseRecord]]:
    """Cases with a result in both, in the base alone, and in the head alone."""
    before = {one.case_id: one for one in base if "verdict" in one.tags}
    after = {one.case_id: one for one in head if "verdict" in one.tags}
    rows = [Row(before[name], one) for name, one in after.items() if name in before]
    only_base = [one for name, one in before.items() if name not in after]
    return rows, only_base, [one for name, one in after.items() if name not in before]


def verdict_of(case: CaseRecord) -> str:
    """The verdict, of a case that has a result."""
    return case.tags["verdict"]


def is_good(case: CaseRecord) -> bool:
    """Whether it ran, and as it should."""
    return verdict_of(case) in RAN_WELL


def _only_in(facts: Facts, other: Facts) -> list[Happening]:
    known = {one.identity for one in breaks_of(other)}
    return [one for one in breaks_of(facts) if one.identity not in known]


def _why(case: CaseRecord) -> str:
    """The checks that speak against it."""
    bad = (Outcome.FAIL, Outcome.INCONCLUSIVE)
    checks = [key.removeprefix("check.") for key, value in sorted(case.tags.items())
              if key.startswith("check.") and value in bad]  # fmt: skip
    return f" ({', '.join(checks)})" if checks else ""
