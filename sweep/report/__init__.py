"""Verdicts -> what people and CI look at: terminal, Markdown, HTML, JUnit, the exit code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.case import file as case_file
from sweep.case.folder import PLAN, read_plan
from sweep.case.labels import Case
from sweep.errors import RequestError
from sweep.files import inside, write_text
from sweep.report.html import page
from sweep.report.junit import junit
from sweep.report.markdown import failure_note, summary, sweep_note
from sweep.report.plots import PLOT, draw_all
from sweep.report.result import Result, exit_code, rerun_command
from sweep.report.table import show

__all__ = [
    "FORMATS", "PLOT", "Report", "Result", "draw_all", "exit_code", "failure_note", "junit",
    "not_run", "page", "rerun_command", "show", "summary", "sweep_note", "write",
]  # fmt: skip


@dataclass(frozen=True)
class Report:
    """What a report is about: the sweep's results, its cases without one, and its versions."""

    sweep_id: str
    results: Sequence[Result]
    missing: Sequence[Case]
    environment: Mapping[str, str]


FORMATS: dict[str, Callable[[Report], str]] = {
    "summary.md": lambda of: summary(of.sweep_id, of.results, of.missing),
    "matrix.html": lambda of: page(of.sweep_id, of.results, of.missing, of.environment),
    "junit.xml": lambda of: junit(of.sweep_id, of.results, of.missing),
}
"""File -> its text. Each is written into the sweep's folder, and kept by the store."""


def write(folder: Path, results: Sequence[Result]) -> None:
    """Write the report in every format into the sweep's folder."""
    environment = _plan(folder).get("environment", {})
    about = Report(folder.name, results, not_run(folder, results), environment)
    for name, text in FORMATS.items():
        write_text(folder / name, text(about))


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
