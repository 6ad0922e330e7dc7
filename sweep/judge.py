"""What the facts of a case mean: findings, and one verdict over them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel

from sweep.case import Case
from sweep.checks import CHECKS, Context, Finding, Outcome
from sweep.checks.exit import timed_out
from sweep.facts import Facts


class Verdict(StrEnum):
    """The outcome of a case, as tagged in MLflow."""

    PASSED = "passed"
    FAILED = "failed"
    KNOWN = "known"
    FIXED = "fixed"
    INCONCLUSIVE = "inconclusive"
    UNAVAILABLE = "unavailable"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"

    @property
    def good(self) -> bool:
        """Whether a sweep of such cases exits 0. An unavailable case is shown, not failed."""
        return self in (Verdict.PASSED, Verdict.KNOWN, Verdict.UNAVAILABLE)


class Judgement(BaseModel):
    """A case's verdict with the findings it came from."""

    case: Case
    verdict: Verdict
    findings: list[Finding]

    @property
    def worst(self) -> Finding | None:
        """The first finding that speaks against the case."""
        against = [found for found in self.findings if not found.advisory]
        for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.UNAVAILABLE):
            for finding in against:
                if finding.outcome is outcome:
                    return finding
        return None


def judge(facts: Facts, context: Context) -> Judgement:
    """Run every check over the facts of a case."""
    found = (check(facts, context) for check in CHECKS.values())
    findings = [finding for finding in found if finding is not None]
    return Judgement(case=facts.case, verdict=_verdict(facts, findings), findings=findings)


def unavailable(case: Case, reason: str) -> Judgement:
    """The judgement of a case that cannot run here; it never counts as a pass."""
    finding = Finding(check="plan", outcome=Outcome.UNAVAILABLE, message=reason)
    return Judgement(case=case, verdict=Verdict.UNAVAILABLE, findings=[finding])


def _verdict(facts: Facts, findings: list[Finding]) -> Verdict:
    outcomes = {found.check: found.outcome for found in findings if not found.advisory}
    if outcomes.get("exit") is Outcome.FAIL:
        return Verdict.TIMED_OUT if timed_out(facts) else Verdict.CRASHED
    if Outcome.FAIL in outcomes.values():
        return Verdict.FAILED
    if Outcome.INCONCLUSIVE in outcomes.values():
        return Verdict.INCONCLUSIVE
    return Verdict.PASSED
