"""Verdicts -> what people and CI look at: terminal, Markdown, HTML, JUnit, the exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweep.files import write_text
from sweep.report.junit import junit
from sweep.report.markdown import failure_note, summary
from sweep.report.result import Result, exit_code, rerun_command
from sweep.report.table import show

__all__ = [
    "Result", "exit_code", "failure_note", "junit", "rerun_command", "show", "summary", "write",
]  # fmt: skip


def write(folder: Path, results: Sequence[Result]) -> None:
    """Write summary.md and junit.xml into the sweep's folder."""
    write_text(folder / "summary.md", summary(folder.name, results))
    write_text(folder / "junit.xml", junit(folder.name, results))
