"""What `plan=true` shows: the cases, what they take, and what cannot run here and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep import estimates
from sweep.plan import Planned


def show(planned: Sequence[Planned], seconds: Mapping[str, float], slots: int) -> None:
    """Print one line a case, and the sums."""
    table = Table(expand=False)
    table.add_column("case", no_wrap=True)
    table.add_column("launches", justify="right")
    table.add_column("estimate", justify="right")
    table.add_column("unavailable here", overflow="fold")
    for one in planned:
        cost = "-" if one.unavailable else f"{seconds[one.case.id]:.0f} s"
        number = str(estimates.launches(one))
        table.add_row(Text(one.case.id), number, cost, Text(one.unavailable or ""))
    console = Console()
    console.print(table)
    console.print(Text(totals(planned, seconds, slots), style="bold"))


def totals(planned: Sequence[Planned], seconds: Mapping[str, float], slots: int) -> str:
    """The sums, as one line."""
    launches = sum(map(estimates.launches, planned))
    available = [one for one in planned if one.unavailable is None]
    minutes = sum(seconds[one.case.id] for one in available) / 60 / slots
    return (
        f"{len(planned)} cases, {launches} launches; {len(planned) - len(available)} unavailable;"
        f" about {minutes:.0f} min, {slots} at a time"
    )
