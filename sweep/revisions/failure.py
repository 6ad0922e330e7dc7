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
    said: str = ""  # by a launch that did not end well
    ending: str = ""  # how it ended, without numbers: what another one is held against

    @classmethod
    def of(cls, judgement: Judgement, facts: Facts, check: str | None) -> Shown:
        """Of a case; an advisory `check` counts as well where it is asked for."""
        against = {
            finding.check: finding.message
            for finding in judgement.findings
            if _counts(finding, check)
        }
        if EXIT not in against:
            return cls(checks=against)
        said, ending = _ending(facts)
        return cls(checks=against, said=said, ending=ending)

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
        if first is None:
            return ""
        more = f": {self.said}" if first == EXIT and self.said not in pairs[first] else ""
        return f"{first}: {pairs[first]}{more}"


def _counts(finding: Finding, check: str | None) -> bool:
    """Whether a finding speaks against the case; of `check` alone, if that is asked for."""
    if finding.outcome is Outcome.PASS or finding.known:
        return False
    if check is not None:
        return finding.check in (check, EXIT)
    return not finding.advisory


def _ending(facts: Facts) -> tuple[str, str]:
    """What was said at the end, and how it ended."""
    launch = next((one for one in facts.launches if not one.ended_well), None)
    if launch is None:
        said = facts.error or "never started"
        return said, _without_numbers(said)
    code = "timed out" if launch.timed_out else f"exit {launch.exit_code}"
    said = launch.failure or last_complaint(launch.log_tail)
    return said, f"{launch.name} {code}: {_without_numbers(said)}"


def _without_numbers(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", text)
