"""What `plan=true` shows: the cases, what they take, and what cannot run here and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep.case.planned import Planned
from sweep.plan import estimates, references
from sweep.report.lines import say

# The cases' (seconds, GPUs) -> seconds until all have ended, and how many run at once
Expected = Callable[[Sequence[tuple[float, int]]], tuple[float, int]]


def show(
    planned: Sequence[Planned],
    seconds: Mapping[str, float],
    expected: Expected,
    console: Console | None = None,
) -> None:
    """Print one line a case, why some cannot run here, and the sums."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold underline")
    table.add_column("case", overflow="fold")
    table.add_column("launches", justify="right", no_wrap=True)
    table.add_column("estimate", justify="right", no_wrap=True)
    for each in planned:
        cost = "not here" if each.unavailable else f"{seconds[each.case.id]:.0f} s"
        table.add_row(Text(each.case.id), _said(*estimates.launches(each)), cost)
    console = console or Console()
    console.print(table)
    for reason, cases in _reasons(planned).items():
        say(console, f"not here, {reason}: {', '.join(cases)}", "dim")
    if alone := references.without(planned):
        names = ", ".join(case.case.id for case in alone)
        hint = "add another layout or feature, or references=true"
        say(console, f"compared with nothing ({hint}): {names}", "yellow")
    say(console, totals(planned, seconds, expected), "bold")


def _said(least: int, most: int) -> str:
    """The number of launches: a range where it depends on what repeats show."""
    return str(least) if least == most else f"{least}-{most}"


def _reasons(planned: Sequence[Planned]) -> dict[str, list[str]]:
    """The cases that cannot run here, by the reason."""
    cases: dict[str, list[str]] = {}
    for case in planned:
        if case.unavailable:
            cases.setdefault(case.unavailable, []).append(case.case.id)
    return cases


def totals(planned: Sequence[Planned], seconds: Mapping[str, float], expected: Expected) -> str:
    """The sums, as one line."""
    counts = [estimates.launches(case) for case in planned]
    launches = _said(sum(least for least, _ in counts), sum(most for _, most in counts))
    available = [case for case in planned if case.unavailable is None]
    whole, at_once = expected(
        [(seconds[case.case.id], case.settings.gpus_per_node) for case in available]
    )
    return (
        f"{len(planned)} cases, {launches} launches; {len(planned) - len(available)} unavailable;"
        f" about {whole / 60:.0f} min, {at_once} at a time"
    )
