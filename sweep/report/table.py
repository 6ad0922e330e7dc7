"""Results on the terminal, readable at 80 columns and less.

Paths, commands and addresses stay in one piece, to be copied; everything else is wrapped here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep.judge import Verdict
from sweep.report.lines import say, say_whole
from sweep.report.looks import LOOKS, worded
from sweep.report.result import Result, counts, curves_address, printable, short
from sweep.report.runs import recorded

Column = tuple[str, Callable[[Result], str]]
COLUMNS: tuple[Column, ...] = (  # the last ones go first where the terminal is narrow
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
    if (run := recorded(folder)) and run.address:
        say_whole(console, "mlflow ", run.address)


def _table(results: Sequence[Result], width: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    columns = _fitting(results, width)
    for name, _ in columns:
        table.add_column(name, overflow="fold", no_wrap=name != "case",
                         justify="right" if name == "time" else "left")  # fmt: skip
    for result in results:
        style = LOOKS[result.judgement.verdict].style
        table.add_row(*(Text(value(result), style=style if name == "verdict" else "")
                        for name, value in columns))  # fmt: skip
    return table


def _fitting(results: Sequence[Result], width: int) -> Sequence[Column]:
    """As many columns as fit side by side; case and verdict always."""
    columns = list(COLUMNS)
    while len(columns) > 2 and _width(columns, results) > width:
        columns.pop()
    return columns


def _width(columns: Sequence[Column], results: Sequence[Result]) -> int:
    widths = (max([len(name), *(len(value(one)) for one in results)]) for name, value in columns)
    return sum(widths) + 2 * len(columns)


def _grouped(results: Sequence[Result]) -> list[list[Result]]:
    """The cases that something speaks against; those of which the same is said together."""
    groups: dict[object, list[Result]] = {}
    for result in results:
        if said := tuple((one.check, one.message) for one in result.against):
            groups.setdefault((result.judgement.verdict, said), []).append(result)
    return list(groups.values())


def _show_unavailable(console: Console, same: Sequence[Result]) -> None:
    """Nothing failed, and there is no folder to look in."""
    look, names = LOOKS[Verdict.UNAVAILABLE], ", ".join(one.case.id for one in same)
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
