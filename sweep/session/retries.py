"""Which failed cases run once more (`launch.retries`); one that then passes is `flaky`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sweep.case import file as case_file
from sweep.case.planned import Planned
from sweep.errors import RequestError
from sweep.judge import Verdict
from sweep.report import Result
from sweep.report.result import short

AGAIN = (Verdict.CRASHED, Verdict.TIMED_OUT, Verdict.FAILED, Verdict.INCONCLUSIVE)
MESSAGE = 300  # characters of what an attempt failed with


def to_run(planned: Sequence[Planned], results: Sequence[Result]) -> list[Planned]:
    """The cases that failed and have an attempt left, with how their earlier ones ended."""
    failed = {
        result.case.id: result
        for result in results
        if result.facts is not None and result.judgement.verdict in AGAIN
    }
    cases = [(case, failed[case.case.id]) for case in planned if case.case.id in failed]
    return [
        _with(case, [*_attempts(result), _ended(result)])
        for case, result in cases
        if len(_attempts(result)) < case.settings.launch.retries
    ]


def carried(folder: Path, planned: Planned) -> Planned:
    """The case with the attempts that it had when its sweep was cut off in a later one."""
    try:
        attempts = case_file.read(folder / planned.case.id).settings.get("attempts") or []
    except RequestError:  # gone or damaged
        return planned
    return _with(planned, [str(attempt) for attempt in attempts]) if attempts else planned


def _attempts(result: Result) -> list[str]:
    return result.facts.attempts if result.facts else []


def _ended(result: Result) -> str:
    return f"{result.judgement.verdict.value}, {short(result.message, MESSAGE)}"


def _with(planned: Planned, attempts: list[str]) -> Planned:
    return replace(planned, settings=replace(planned.settings, attempts=attempts))
