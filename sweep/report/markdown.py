"""Results as Markdown: summary.md, and the notes that head a run's page in MLflow."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.report.result import Result, counts


def summary(sweep_id: str, results: Sequence[Result]) -> str:
    """The table and the failures as Markdown."""
    lines = [f"# Sweep {sweep_id}", "", counts(results), ""]
    lines += ["| case | verdict | loss | time |", "| --- | --- | --- | --- |"]
    lines += [f"| {result.case.id} | {result.judgement.verdict.value} | {result.losses} "
              f"| {result.time} |" for result in results]  # fmt: skip
    for result in results:
        if result.message:
            lines += ["", failure_note(result)]
    notes = [f"- {result.case.id}: {note}" for result in results for note in result.notes]
    if notes:
        lines += ["", "## Notes", "", *notes]
    return "\n".join(lines) + "\n"


def failure_note(result: Result, limit: int = 6000) -> str:
    """What went wrong with a case, where to look, and how to run it again, as Markdown."""
    note = f"## {result.case.id}: {result.judgement.verdict.value}\n\n{result.message}\n\n"
    note += f"Look in `{result.where}`. Run it again:\n\n    {result.command}\n"
    for title, text in result.tails:
        indented = "\n".join(f"    {line}" for line in text.splitlines())
        note += f"\n{title[0].upper()}{title[1:]}:\n\n{indented}\n"
    return note if len(note) <= limit else note[:limit] + "\n[cut]\n"
