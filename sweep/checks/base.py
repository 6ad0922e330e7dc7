"""What a check gets and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, Field

from sweep.checks import thresholds
from sweep.facts import Facts
from sweep.files import ConfDirs


class Outcome(StrEnum):
    """`inconclusive`: the check could not see what it needs; it counts as a failure."""

    PASS = "pass"  # no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    UNAVAILABLE = "unavailable"


class Finding(BaseModel):
    """What one check says of one case."""

    check: str
    outcome: Outcome
    message: str = ""
    metrics: dict[str, float] = Field(default_factory=dict)  # go to MLflow under these names
    folder: str = ""  # where to look, relative to the case's folder
    advisory: bool = False  # shown, but never fails the case
    alone: bool = False  # there was no other case to compare with
    known: str = ""  # the issue of a failure that is known
    margin: float | None = None  # the farthest figure, as a multiple of its threshold


def largest_metrics(findings: Sequence[Finding]) -> dict[str, float]:
    """Each metric's largest value over several findings of one check."""
    names = sorted({name for finding in findings for name in finding.metrics})
    return {name: max(finding.metrics.get(name, 0.0) for finding in findings) for name in names}


def largest_margin(findings: Sequence[Finding]) -> float | None:
    """The farthest figure over several findings of one check; None if none has a margin."""
    return max((one.margin for one in findings if one.margin is not None), default=None)


@dataclass(frozen=True)
class Context:
    """What a case is compared with, facts by case id; and the folders of configuration.

    `sweep`: of the same sweep, as far as it is known; `last_good`: of the newest earlier run of the
    same case that passed; `pinned`: of the sweep that is pinned as the baseline.
    """

    sweep: Mapping[str, Facts] = field(default_factory=dict)
    last_good: Mapping[str, Facts] = field(default_factory=dict)
    pinned: Mapping[str, Facts] = field(default_factory=dict)
    conf: ConfDirs = field(default_factory=ConfDirs)

    @property
    def limits(self) -> thresholds.Table:
        """The thresholds of `conf`; raises RequestError if a file cannot be read."""
        return thresholds.table(self.conf)
