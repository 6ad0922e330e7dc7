"""Verdicts -> what people and CI look at: terminal, Markdown, HTML, JUnit, the exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.case import file as case_file
from sweep.case.folder import PLAN, SPARED, read_plan
from sweep.case.labels import Case
from sweep.errors import RequestError
from sweep.files import inside, write_text
from sweep.report.brief import brief
from sweep.report.html import page
from sweep.report.junit import junit
from sweep.report.markdown import details, failure_note, sweep_note
from sweep.report.past import NO_PAST, Past
from sweep.report.plots import PLOT, draw_all
from sweep.report.result import Result, exit_code, rerun_command
from sweep.report.table import show

__all__ = [
    "FORMATS",
    "PLOT",
    "Past",
    "Report",
    "Result",
    "brief",
    "details",
    "draw_all",
    "exit_code",
    "failure_note",
    "junit",
    "not_run",
    "page",
    "report_of",
    "rerun_command",
    "show",
    "sweep_note",
    "write",
    "write_report",
]


@dataclass(frozen=True)
class Report:
    """What a report is about: the sweep's results, its cases without one, and its versions."""

    sweep_id: str
    results: Sequence[Result]
    missing: Sequence[Case]
    environment: Mapping[str, str]
    experiment: str = "adhoc"
    spared: str = ""  # why the cases without a result were not run; empty: the sweep was cut off
    past: Past = NO_PAST


FORMATS: dict[str, Callable[[Report], str]] = {
    "summary.md": lambda of: brief(
        of.experiment, of.sweep_id, of.results, of.missing, of.past, of.spared
    ),
    "details.md": lambda of: details(of.sweep_id, of.results, of.missing),
    "matrix.html": lambda of: page(
        of.sweep_id, of.results, of.missing, of.environment, of.past, of.spared
    ),
    "junit.xml": lambda of: junit(of.sweep_id, of.results, of.missing, of.spared),
}
"""File -> its text. Each is written into the sweep's folder, and kept by the store."""


def write(folder: Path, results: Sequence[Result], past: Past = NO_PAST) -> None:
    """Write the report in every format into the sweep's folder."""
    write_report(folder, report_of(folder, results, past))


def write_report(folder: Path, about: Report) -> None:
    """Write a report in every format into the folder."""
    for name, text in FORMATS.items():
        write_text(folder / name, text(about))


def report_of(folder: Path, results: Sequence[Result], past: Past = NO_PAST) -> Report:
    """The report on the sweep in `folder`."""
    plan = _plan(folder)
    return Report(
        sweep_id=folder.name,
        results=results,
        missing=not_run(folder, results),
        environment=plan.get("environment", {}),
        experiment=str(plan.get("experiment", "adhoc")),
        spared=str(plan.get(SPARED, "")),
        past=past,
    )


def not_run(folder: Path, results: Sequence[Result]) -> list[Case]:
    """The cases of the sweep in `folder` that have no result."""
    known = {result.case.id for result in results}
    left = [str(name) for name in _plan(folder).get("cases", []) if name not in known]
    return [_labels(inside(folder, name)) for name in left]


def _labels(case_dir: Path) -> Case:
    """From case.json; where that is damaged or on another machine, what the case's id says."""
    try:
        return case_file.read(case_dir).case
    except (RequestError, OSError):
        return Case.of_id(case_dir.name)


def _plan(folder: Path) -> dict[str, Any]:
    return read_plan(folder) if (folder / PLAN).is_file() else {}
