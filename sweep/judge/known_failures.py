"""The failures that are known, from `conf/known_failures.yaml`; strict both ways.

A failure that an entry describes does not fail the sweep. An entry whose case passes does, until
it is deleted: an expectation that may rot silently is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime

from pydantic import Field, field_validator

from sweep import conf_file
from sweep.case.labels import Case
from sweep.checks import CHECKS, Finding, Outcome
from sweep.conf_file import OfCases, Pattern
from sweep.errors import unknown
from sweep.facts import Facts
from sweep.files import ConfDirs

FILE = "known_failures.yaml"
CHECK = "known_failures"  # of the finding that an entry is to be deleted


class KnownFailure(OfCases):
    """A failure that is expected, and where it is dealt with."""

    check: str
    message: Pattern  # found anywhere in the finding's message
    issue: str = Field(pattern="^(https?://|docs/)")  # or a page of docs/ where none is open
    until: date | None = None  # the last day on which it is expected

    @field_validator("check")
    @classmethod
    def _is_check(cls, value: str) -> str:
        if value not in CHECKS:
            raise ValueError(unknown("check", value, CHECKS))
        return value

    def concerns(self, finding: Finding) -> bool:
        """Whether it is about that check."""
        return finding.check == self.check

    def describes(self, finding: Finding) -> bool:
        """Whether it is this failure."""
        return self.concerns(finding) and re.search(self.message, finding.message) is not None

    def __str__(self) -> str:
        return f"{self.place} (case: {self.case}, check: {self.check})"


def of_case(case: Case, conf: ConfDirs) -> list[KnownFailure]:
    """The entries that name the case; raises RequestError if a file cannot be read."""
    return [entry for entry in entries(conf) if entry.names(case)]


def entries(conf: ConfDirs) -> Sequence[KnownFailure]:
    """All that are known; raises RequestError if a file cannot be read."""
    return conf_file.entries(conf, FILE, KnownFailure)


def marked(facts: Facts, findings: Sequence[Finding], conf: ConfDirs) -> list[Finding]:
    """The findings, with what is known of them, and one more for each entry to delete."""
    entries_of_it = of_case(facts.case, conf)
    today = datetime.fromtimestamp(facts.started, UTC).date()  # a night judged again is that night
    done = [_marked(finding, entries_of_it, today) for finding in findings]
    if any(finding.check == "exit" and finding.outcome is not Outcome.PASS for finding in findings):
        return done  # what else is missing follows from that
    return done + [_fixed(entry) for entry in entries_of_it if _is_stale(entry, findings)]


def counts_against(findings: Sequence[Finding]) -> list[Finding]:
    """The findings that a verdict is about: where the trainer did not end well, that alone."""
    against = [
        finding
        for finding in findings
        if not finding.advisory and finding.outcome is not Outcome.PASS
    ]
    exits = [finding for finding in against if finding.check == "exit"]
    return exits or against


def _marked(finding: Finding, of_it: Sequence[KnownFailure], today: date) -> Finding:
    mine = [entry for entry in of_it if entry.concerns(finding)]
    if finding.outcome is Outcome.PASS or not mine:
        return finding
    described = [entry for entry in mine if entry.describes(finding)]
    current = [entry for entry in described if entry.until is None or today <= entry.until]
    if current:
        return finding.model_copy(update={"known": current[0].issue})
    if described:
        said = f"known until {described[0].until} only, by {described[0]}: {described[0].issue}"
    else:
        said = f"not the failure of {mine[0]}, which has: {mine[0].message}"
    return finding.model_copy(update={"message": f"{finding.message}; {said}"})


def _is_stale(entry: KnownFailure, findings: Sequence[Finding]) -> bool:
    return any(entry.concerns(finding) and finding.outcome is Outcome.PASS for finding in findings)


def _fixed(entry: KnownFailure) -> Finding:
    message = f"no longer fails; delete {entry}: {entry.issue}"
    return Finding(check=CHECK, outcome=Outcome.FAIL, message=message)
