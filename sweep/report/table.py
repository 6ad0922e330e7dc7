"""Results on the terminal, readable at 80 columns and less.

Paths, commands and addresses are never wrapped, so that they can be copied.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep.judge import Verdict
from sweep.report.lines import grid, say, say_whole
from sweep.report.looks import LOOKS, worded
from sweep.report.result import Result, counts, curves_address, printable, short
from sweep.report.runs import run_of

Column = tuple[str, Callable[[Result], str]]
COLUMNS: tuple[Column, ...] = (  # on a narrow terminal the last ones are left out
    ("case", lambda result: result.case.id),
    ("verdict", lambda result: worded(result.judgement)),
    ("time", lambda result: result.time),
    ("loss", lambda result: result.losses),
)


def show(
    folder: Path, results: Sequence[Result], problem: str | None, console: Console | None = None
) -> None:
    """Print the table, then each failure with where to look and how to run it again."""
    console = console or Console()
    console.print(_table(results, console.width))
    groups = _grouped(results)
    for same in groups:
        if same[0].judgement.verdict is not Verdict.UNAVAILABLE:
            _show_group(console, same, results)
    console.print()
    for same in groups:
        if same[0].judgement.verdict is Verdict.UNAVAILABLE:
            _show_unavailable(console, same)
    _show_notes(console, results)
    if problem is not None:
        say(console, f"the sweep itself had a problem: {printable(problem)}", "red")
    console.print(Text(counts(results), style="bold"))
    say_whole(console, "summary", str(folder / "summary.md"))
    say_whole(console, "page   ", str(folder / "matrix.html"))
    if run := run_of(folder):
        say_whole(console, "mlflow ", run.address or _look_at(run.uri))


def _look_at(uri: str) -> str:
    """The command that serves the UI of a store without a server."""
    return shlex.join(["python", "-m", "mlflow", "ui", "--backend-store-uri", uri])


def _table(results: Sequence[Result], width: int) -> Table:
    columns = _fitting(results, width)
    rows = (
        [Text(value(result), style=_style(name, result)) for name, value in columns]
        for result in results
    )
    return grid([name for name, _ in columns], rows, right=["time"], gap=2)


def _style(column: str, result: Result) -> str:
    return LOOKS[result.judgement.verdict].style if column == "verdict" else ""


def _fitting(results: Sequence[Result], width: int) -> Sequence[Column]:
    """As many columns as fit; always case and verdict."""
    columns = list(COLUMNS)
    while len(columns) > 2 and _width(columns, results) > width:
        columns.pop()
    return columns


def _width(columns: Sequence[Column], results: Sequence[Result]) -> int:
    texts = ([name, *map(value, results)] for name, value in columns)
    return sum(max(map(len, column)) for column in texts) + 2 * len(columns)


def _grouped(results: Sequence[Result]) -> list[list[Result]]:
    """The cases that have failures, grouped by verdict and messages."""
    groups: dict[object, list[Result]] = {}
    for result in results:
        if messages := tuple((finding.check, finding.message) for finding in result.against):
            groups.setdefault((result.judgement.verdict, messages), []).append(result)
    return list(groups.values())


def _show_unavailable(console: Console, same: Sequence[Result]) -> None:
    """One line: nothing failed, and there is no folder to look in."""
    look, names = LOOKS[Verdict.UNAVAILABLE], ", ".join(result.case.id for result in same)
    reason = short(same[0].message)
    say(console, f"{look.symbol} {Verdict.UNAVAILABLE}, {reason}: {names}", look.style)


def _show_group(console: Console, same: Sequence[Result], results: Sequence[Result]) -> None:
    first, look = same[0], LOOKS[same[0].judgement.verdict]
    console.print()
    title = f"{first.case.id}: {first.judgement.verdict.value}"
    say_whole(console, look.symbol, title, look.style)
    _show_failure(console, first, results)
    if len(same) > 1:
        say(console, f"the same in {len(same) - 1} more; look in", indent=2)
    for other in same[1:]:
        say_whole(console, "   ", str(other.where))


def _show_failure(console: Console, result: Result, results: Sequence[Result]) -> None:
    for finding in result.against:
        say(console, f"{finding.check}: {short(finding.message)}", indent=4)
    if result.located:
        say(console, f"parts at: {short(result.located)}", indent=4)
    say_whole(console, "  look in", str(result.where))
    say_whole(console, "  again  ", result.command)
    if address := curves_address(result, results):
        say_whole(console, "  curves ", address)
    for title, text in result.tails:
        say_whole(console, f"  {title}:", "", "bold")
        for line in text.splitlines():
            say_whole(console, "   ", printable(line))


def _show_notes(console: Console, results: Sequence[Result]) -> None:
    notes: dict[str, list[str]] = {}
    for result in results:
        for note in result.notes:
            notes.setdefault(note, []).append(result.case.id)
    for note, cases in notes.items():
        more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
        say(console, f"{cases[0]}{more}: {short(note)}", "dim")
