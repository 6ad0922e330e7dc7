"""Results as Markdown: details.md, and the note at the top of a run's page in MLflow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sweep.case.labels import Case
from sweep.report.matrix import Cell, Link, file_link, matrix, no_link, note_link
from sweep.report.result import Result, counts, curves_address, printable, short

CUT = "\n[cut; all of it is in details.md]\n"


def details(sweep_id: str, results: Sequence[Result], missing: Sequence[Case] = ()) -> str:
    """The matrix, the cases, the failures with the ends of their logs, and the notes."""
    lines = [f"# Sweep {sweep_id}", "", counts(results), ""]
    lines += [*matrix_lines(results, missing, file_link), ""]
    lines += table(
        ("case", "verdict", "loss", "time"),
        (
            (escaped(result.case.id), result.judgement.words, result.losses, result.time)
            for result in results
        ),
    )
    lines += _failures(results)
    notes = [
        f"- {escaped(f'{result.case.id}: {note}')}" for result in results for note in result.notes
    ]
    if notes:
        lines += ["", "## Notes", "", *notes]
    return "\n".join(lines) + "\n"


def sweep_note(results: Sequence[Result], missing: Sequence[Case] = (), limit: int = 7900) -> str:
    """The matrix and the failures in `limit` characters, with links inside the MLflow UI.

    It has no heading, since the UI shows only the first lines until it is opened.
    """
    head = f"{counts(results)}\n\n"
    table = "The matrix is in the artifact matrix.html.\n"
    for link, findings in ((note_link, True), (note_link, False), (no_link, False)):
        tried = "\n".join(matrix_lines(results, missing, link, findings)) + "\n"
        if len(head) + len(tried) + len(CUT) <= limit:
            table = tried
            break
    return _cut(head + table + "\n".join(_failures(results)), limit)


def failure_note(result: Result, limit: int = 6000) -> str:
    """What went wrong with a case, where to look, and the command to run it again."""
    note = f"## {escaped(result.case.id)}: {result.judgement.verdict.value}\n\n"
    room = limit // 4  # so that a long message leaves room for the command
    note += "".join(
        f"{escaped(f'{finding.check}: {short(finding.message, room)}')}\n\n"
        for finding in result.against
    )
    if result.located:
        note += f"{escaped(f'parts at: {short(result.located, room)}')}\n\n"
    note += f"Look in `{result.where}`. Run it again:\n\n    {result.command}\n"
    for title, text in result.tails:
        indented = "\n".join(f"    {printable(line)}" for line in text.splitlines())
        note += f"\n{title[0].upper()}{title[1:]}:\n\n{indented}\n"
    return note if len(note) <= limit else note[:limit] + "\n[cut]\n"


def matrix_lines(
    results: Sequence[Result], missing: Sequence[Case], link: Link, findings: bool = True
) -> list[str]:
    """The matrix as a Markdown table; empty places were not asked for."""
    whole = matrix(results, missing)
    names = [escaped(f"{layout} {feature}") for layout, feature in whole.columns]
    rows = []
    for arch in whole.archs:
        places = [whole.at(arch, column) for column in whole.columns]
        texts = [
            "; ".join(_named(cell, place) + _cell(cell, link, findings) for cell in place)
            for place in places
        ]
        rows.append([escaped(arch), *texts])
    return table(["", *names], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table; its cells are escaped already."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def escaped(text: str) -> str:
    """Text in one line, escaped for Markdown, tables included."""
    line = " ".join(printable(text).split())
    return re.sub(r"([\\`*\[\]<>|~&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[#+-])", r"\\\1", line)


def _named(cell: Cell, place: Sequence[Cell]) -> str:
    """Which of several cases in one place it is."""
    return f"{escaped(cell.distinction or 'as it is')}: " if len(place) > 1 else ""


def _cell(cell: Cell, link: Link, findings: bool) -> str:
    address = link(cell.result) if cell.result else ""
    text = f"{cell.symbol} {cell.said}".replace("~", "\\~")
    verdict = f"[{text}]({address})" if address else text
    return f"{verdict} {escaped(cell.finding)}".rstrip() if findings else verdict


def _failures(results: Sequence[Result]) -> list[str]:
    lines: list[str] = []
    for result in results:
        if result.message:
            lines += ["", failure_note(result)]
            address = curves_address(result, results)
            lines += [f"[Its curves in MLflow]({address})"] if address else []
    return lines


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - len(CUT)] + CUT
