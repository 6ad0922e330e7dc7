"""What `plan=true` shows: the cases, what they take, and what cannot run here and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep.case.planned import Planned
from sweep.plan import estimates
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
    for case in planned:
        cost = "not here" if case.unavailable else f"{seconds[case.case.id]:.0f} s"
        table.add_row(Text(case.case.id), str(estimates.launches(case)), cost)
    console = console or Console()
    console.print(table)
    for reason, cases in _reasons(planned).items():
        say(console, f"not here, {reason}: {', '.join(cases)}", "dim")
    say(console, totals(planned, seconds, expected), "bold")


def _reasons(planned: Sequence[Planned]) -> dict[str, list[str]]:
    """The cases that cannot run here, by the reason."""
    reasons: dict[str, list[str]] = {}
    for case in planned:
        if case.unavailable:
            reasons.setdefault(case.unavailable, []).append(case.case.id)
    return reasons


def totals(planned: Sequence[Planned], seconds: Mapping[str, float], expected: Expected) -> str:
    """The sums, as one line."""
    launches = sum(map(estimates.launches, planned))
    available = [case for case in planned if case.unavailable is None]
    whole, at_once = expected(
        [(seconds[case.case.id], case.settings.gpus_per_node) for case in available]
    )
    return (
        f"{len(planned)} cases, {launches} launches; {len(planned) - len(available)} unavailable;"
        f" about {whole / 60:.0f} min, {at_once} at a time"
    )
