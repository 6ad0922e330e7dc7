"""The nights on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from sweep.history.case import CaseHistory
from sweep.history.view import View, flaky, headline, nearest, rate, symbol
from sweep.report.lines import grid, say, say_whole
from sweep.report.looks import LOOKS, STYLES
from sweep.report.result import printable

HEAD = ("case", "since", "passed", "flaky", "closest", "nights")
LEAST = 7  # nights, on however narrow a terminal
LEGEND = (
    "nights: the newest on the right. flaky: verdicts that changed at the same commit and versions."
    " closest: the check that came the nearest to its threshold, and to what part of it"
)


def show(view: View, console: Console) -> None:
    """Print the table, then what changed, what is about to, and what moved then."""
    console.print(Text(view.title, style="bold"))
    rows = [_values(view, case) for case in view.cases]
    room = max(LEAST, console.width - _width(rows))
    lines = [
        [*map(Text, values), _line(view, case, room)]
        for case, values in zip(view.cases, rows, strict=True)
    ]
    console.print(grid(HEAD, lines, right=HEAD[2:4]))
    say(console, LEGEND, "dim")
    say(console, _symbols(view), "dim")
    for case in view.of_note():
        _show_case(view, case, console)


def _values(view: View, case: CaseHistory) -> list[str]:
    texts = [case.case_id, view.since(case), rate(case), flaky(case), nearest(case)]
    return [printable(text) for text in texts]


def _width(rows: list[list[str]]) -> int:
    columns = zip(HEAD, *rows, strict=False)
    return sum(max(map(len, column)) + 1 for column in columns) + 1


def _line(view: View, case: CaseHistory, room: int) -> Text:
    line = Text(no_wrap=True)
    for place in view.cells(case)[-room:]:
        line.append(symbol(place), style=STYLES.get(place.verdict, "") if place else "")
    return line


def _symbols(view: View) -> str:
    seen = {place.verdict for case in view.cases for place in case.places}
    known = [f"{look.symbol} {verdict}" for verdict, look in LOOKS.items() if verdict in seen]
    return "  ".join([*known, *(["· not run"] if "" in seen else [])])


def _show_case(view: View, case: CaseHistory, console: Console) -> None:
    console.print()
    say_whole(console, "", printable(headline(view, case)), STYLES.get(case.verdict, ""))
    for warning in case.warnings:
        say(console, f"warning: {printable(warning)}", "yellow", indent=4)
    if change := view.change_of(case):
        say(console, f"{change.verdicts} in {change.now.night.sweep_id}; moved:", indent=4)
        for line in view.said(change):
            say(console, printable(line), indent=6)
