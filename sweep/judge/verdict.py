"""One case: the findings of every check over its facts, and one verdict over them."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel

from sweep.case.labels import Case
from sweep.checks import CHECKS, Check, Context, Finding, Outcome, known_breaks, names, thresholds
from sweep.checks.exit import timed_out
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.files import ConfDirs
from sweep.judge import known_failures

RETRIES = "retries"
"""The check of a finding about earlier attempts of a case (`launch.retries`)."""


class Verdict(StrEnum):
    """The outcome of a case, as tagged in MLflow."""

    PASSED = "passed"
    FAILED = "failed"
    KNOWN = "known"
    FIXED = "fixed"
    FLAKY = "flaky"  # failed, and passed when it ran again
    INCONCLUSIVE = "inconclusive"
    UNAVAILABLE = "unavailable"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"

    @property
    def ran_well(self) -> bool:
        """Whether the case ran, and as it is expected to."""
        return self in (Verdict.PASSED, Verdict.KNOWN)

    @property
    def good(self) -> bool:
        """Whether a sweep of such cases exits 0. An unavailable case is shown, not failed."""
        return self.ran_well or self is Verdict.UNAVAILABLE


class Judgement(BaseModel):
    """A case's verdict with the findings it came from."""

    case: Case
    verdict: Verdict
    findings: list[Finding]

    @property
    def words(self) -> str:
        """The verdict as people read it: a pass that rests on no comparison says so."""
        alone = self.verdict is Verdict.PASSED and self._is_alone
        return f"{self.verdict.value}, not compared" if alone else self.verdict.value

    @property
    def _is_alone(self) -> bool:
        """Whether neither another case nor the oracle says what it should compute."""
        is_seen = any(
            finding.check == "oracle" and finding.outcome is Outcome.PASS
            for finding in self.findings
        )
        return not is_seen and any(finding.alone for finding in self.findings)

    @property
    def worst(self) -> Finding | None:
        """The first finding that speaks against the case; a known one only if nothing else does."""
        is_known = self.verdict is Verdict.KNOWN
        against = [
            finding
            for finding in self.findings
            if not finding.advisory and (is_known or not finding.known)
        ]
        for outcome in (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.UNAVAILABLE):
            for finding in against:
                if finding.outcome is outcome:
                    return finding
        return None


def ready(conf: ConfDirs) -> None:
    """Read the files that judging needs; raises RequestError for one that cannot be read."""
    names.check(thresholds.table(conf), conf.choices_of("arch"))
    known_breaks.entries(conf)
    known_failures.entries(conf)


def judge(facts: Facts, context: Context) -> Judgement:
    """Run every check over the facts of a case; one that cannot be run is inconclusive."""
    outcomes = [_run(name, check, facts, context) for name, check in CHECKS.items()]
    findings = [_weighed(finding, context) for finding in outcomes if finding is not None]
    findings = known_failures.marked(facts, findings, context.conf)
    findings += _of_attempts(facts, findings)
    return Judgement(case=facts.case, verdict=_verdict(facts, findings), findings=findings)


def _of_attempts(facts: Facts, findings: list[Finding]) -> list[Finding]:
    """What earlier attempts of the case say: that it is flaky, or that it fails each time."""
    if not facts.attempts:
        return []
    new = [finding for finding in known_failures.counts_against(findings) if not finding.known]
    count, before = len(facts.attempts) + 1, "; ".join(facts.attempts)
    if {finding.check for finding in new} - {known_failures.CHECK}:
        said = f"failed in each of {count} attempts; earlier: {before}"
        return [Finding(check=RETRIES, outcome=Outcome.PASS, message=said)]
    said = f"passed only at attempt {count}; earlier: {before}"
    return [Finding(check=RETRIES, outcome=Outcome.FAIL, message=said)]


def _weighed(finding: Finding, context: Context) -> Finding:
    if finding.check not in context.limits.advisory:
        return finding
    return finding.model_copy(update={"advisory": True})


def unavailable(case: Case, reason: str) -> Judgement:
    """The judgement of a case that cannot run here; it never counts as a pass."""
    finding = Finding(check="plan", outcome=Outcome.UNAVAILABLE, message=reason)
    return Judgement(case=case, verdict=Verdict.UNAVAILABLE, findings=[finding])


def unreadable(case: Case, reason: str) -> Judgement:
    """The judgement of a case whose files or records cannot be read; it fails the sweep."""
    finding = Finding(check="facts", outcome=Outcome.INCONCLUSIVE, message=reason)
    return Judgement(case=case, verdict=Verdict.INCONCLUSIVE, findings=[finding])


def _run(name: str, check: Check, facts: Facts, context: Context) -> Finding | None:
    try:
        return check(facts, context)
    except RequestError as error:  # as for a threshold that nobody has measured
        return Finding(check=name, outcome=Outcome.INCONCLUSIVE, message=str(error))
    except Exception as error:  # noqa: BLE001  # one check's fault must not hide the others
        message = f"the check itself failed: {type(error).__name__}: {error}"
        return Finding(check=name, outcome=Outcome.INCONCLUSIVE, message=message)


def _verdict(facts: Facts, findings: list[Finding]) -> Verdict:
    against = known_failures.counts_against(findings)
    new = [finding for finding in against if not finding.known]
    if not new:
        return Verdict.KNOWN if against else Verdict.PASSED
    checks = {finding.check for finding in new}
    if "exit" in checks:
        return Verdict.TIMED_OUT if timed_out(facts) else Verdict.CRASHED
    if RETRIES in checks:  # all the others passed
        return Verdict.FLAKY
    if checks == {known_failures.CHECK}:
        return Verdict.FIXED
    is_failed = Outcome.FAIL in {finding.outcome for finding in new}
    return Verdict.FAILED if is_failed else Verdict.INCONCLUSIVE
