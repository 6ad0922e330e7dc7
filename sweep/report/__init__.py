"""Verdicts -> what people and CI look at: terminal, Markdown, HTML, JUnit, the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sweep.case import file as case_file
from sweep.case.folder import PLAN, read_plan
from sweep.case.labels import Case
from sweep.files import write_text
from sweep.report.html import page
from sweep.report.junit import junit
from sweep.report.markdown import failure_note, summary, sweep_note
from sweep.report.plots import PLOT, draw_all
from sweep.report.result import Result, exit_code, rerun_command
from sweep.report.table import show

__all__ = [
    "PLOT", "Result", "draw_all", "exit_code", "failure_note", "junit", "not_run", "page",
    "rerun_command", "show", "summary", "sweep_note", "write",
]  # fmt: skip


def write(folder: Path, results: Sequence[Result]) -> None:
    """Write summary.md, matrix.html and junit.xml into the sweep's folder.

    What sweep.json says of versions and of cases that have no result is in them as well.
    """
    missing = not_run(folder, results)
    about = _plan(folder).get("environment", {})
    write_text(folder / "summary.md", summary(folder.name, results, missing))
    write_text(folder / "matrix.html", page(folder.name, results, missing, about))
    write_text(folder / "junit.xml", junit(folder.name, results))


def not_run(folder: Path, results: Sequence[Result]) -> list[Case]:
    """The cases of the sweep in `folder` that have no result."""
    known = {result.case.id for result in results}
    left = [case_id for case_id in _plan(folder).get("cases", []) if case_id not in known]
    return [
        case_file.read(folder / case_id).case
        for case_id in left
        if case_file.exists(folder / case_id)
    ]


def _plan(folder: Path) -> dict[str, Any]:
    return read_plan(folder) if (folder / PLAN).is_file() else {}
