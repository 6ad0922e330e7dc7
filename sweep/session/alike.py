"""A night that breaks everywhere stops early: N cases failed alike (`launch.stop_after_alike`)."""

from __future__ import annotations

import re
from collections import Counter

from sweep.facts import LaunchFacts
from sweep.judge import Verdict
from sweep.report import Result
from sweep.report.result import short

COUNTED = (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.FAILED)
SHOWN = 200  # characters of the cause
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\d+(\.\d+)?(e[-+]?\d+)?")


class EnoughError(Exception):
    """So many cases failed alike that the rest would say nothing new; the text says which way."""


class Alike:
    """Counts failures by their root cause; without a limit none is too many."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._causes: Counter[str] = Counter()

    def count(self, result: Result) -> None:
        """Another case has ended; raises EnoughError where that is the last one to run."""
        cause = cause_of(result)
        if self._limit is None or not cause:
            return
        self._causes[cause] += 1
        if self._causes[cause] >= self._limit:
            count = self._causes[cause]
            many = f"{count} cases failed alike" if count > 1 else "a case failed"
            raise EnoughError(f"{many}: {short(result.message, SHOWN)}")


def cause_of(result: Result) -> str:
    """What it failed with, without numbers and the names of the case; empty if it did not."""
    worst = result.judgement.worst
    if result.judgement.verdict not in COUNTED or worst is None:
        return ""
    text = worst.message
    if worst.check == "exit" and result.facts:
        launch = next((one for one in result.facts.launches if not one.ended_well), None)
        text = _of_launch(launch) if launch else result.facts.error or text
    case = result.case
    for name in (case.id, case.arch, case.layout, case.feature):
        text = re.sub(rf"\b{re.escape(name)}\b", "*", text)
    return f"{worst.check}: {_NUMBERS.sub('#', text)}"


def _of_launch(launch: LaunchFacts) -> str:
    """Not which rank failed first, nor at which step: they vary."""
    if launch.timed_out:
        return "still running at the limit"
    return launch.failure or f"exit code {launch.exit_code}"
