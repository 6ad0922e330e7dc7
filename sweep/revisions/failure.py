"""Which failure a search is after, and whether a revision shows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

from pydantic import BaseModel, Field

from sweep.checks import Finding, Outcome
from sweep.facts import Facts
from sweep.judge import Judgement
from sweep.logs.root_cause import last_complaint

EXIT = "exit"


class State(StrEnum):
    """What a search makes of a revision."""

    GOOD = "good"
    BAD = "bad"
    CANNOT_RUN = "cannot run"


class Shown(BaseModel):
    """What a revision showed: each check that fails, with its message; how a launch ended."""

    checks: dict[str, str] = Field(default_factory=dict)
    ending: str = ""  # of a launch that did not end well, without its numbers

    @classmethod
    def of(cls, judgement: Judgement, facts: Facts, check: str | None) -> Shown:
        """Of a case; an advisory `check` counts as well where it is asked for."""
        against = {
            finding.check: finding.message
            for finding in judgement.findings
            if _counts(finding, check)
        }
        return cls(checks=against, ending=_ending(facts) if EXIT in against else "")

    def state(self, wanted: Shown) -> State:
        """Good without a failing check, bad with one of those wanted, else it cannot say.

        A launch that ends badly shows nothing of the other checks; one that was to end so has to do
        it in the same way.
        """
        if not self.checks:
            return State.GOOD
        if EXIT in self.checks or EXIT in wanted.checks:
            is_same = EXIT in wanted.checks and self.ending == wanted.ending
        else:
            is_same = bool(self.checks.keys() & wanted.checks.keys())
        return State.BAD if is_same else State.CANNOT_RUN

    @property
    def line(self) -> str:
        """The first of the messages; empty if there is none."""
        pairs: Mapping[str, str] = self.checks
        first = EXIT if EXIT in pairs else next(iter(pairs), None)
        return f"{first}: {pairs[first]}" if first is not None else ""


def _counts(finding: Finding, check: str | None) -> bool:
    """Whether a finding speaks against the case; of `check` alone, if that is asked for."""
    if finding.outcome is Outcome.PASS or finding.known:
        return False
    if check is not None:
        return finding.check in (check, EXIT)
    return not finding.advisory


def _ending(facts: Facts) -> str:
    launch = next((one for one in facts.launches if not one.ended_well), None)
    if launch is None:
        return _without_numbers(facts.error or "never started")
    code = "timed out" if launch.timed_out else f"exit {launch.exit_code}"
    said = launch.failure or last_complaint(launch.log_tail)
    return f"{launch.name} {code}: {_without_numbers(said)}"


def _without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", text)
