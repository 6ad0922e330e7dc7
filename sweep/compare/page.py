"""The comparison of two sweeps, on the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.console import Console
from rich.text import Text

from sweep import provenance
from sweep.checks import comparable
from sweep.checks.thresholds import Table
from sweep.compare.rows import Row, is_good, pair, verdict_of
from sweep.report.lines import grid, say, say_whole
from sweep.report.markdown import escaped, table
from sweep.report.result import printable
from sweep.store import CaseRecord, SweepRecord

COLUMNS = ("case", "verdict", "loss", "grad norm", "step", "memory", "time")
LEGEND = (
    "loss, grad norm: the largest relative difference over the steps; step, memory, time: head to"
    " base"
)
REGRESSIONS = "Regressions"
NAMED = 12  # parts of the provenance that moved


@dataclass(frozen=True)
class Page:
    """The comparison of two sweeps."""

    base: SweepRecord
    head: SweepRecord
    rows: Sequence[Row]
    only_base: Sequence[CaseRecord]
    only_head: Sequence[CaseRecord]
    planned: Sequence[str] = ()  # the cases that the head was to run

    @classmethod
    def of(
        cls, base: SweepRecord, head: SweepRecord,
        base_cases: Sequence[CaseRecord], head_cases: Sequence[CaseRecord],
        limits: Table, planned: Sequence[str] = (),
    ) -> Page:  # fmt: skip
        """Pair the cases of both sweeps."""
        return cls(base, head, *pair(base_cases, head_cases, limits), planned)

    @cached_property
    def regressions(self) -> list[str]:
        """A line for each thing that got worse, with its case."""
        worse = [f"{row.case_id}: {message}" for row in self.rows for message in row.regressions()]
        lost = [case for case in self._lost if is_good(case)]
        return worse + [
            f"{case.case_id}: {verdict_of(case)} > no result, of a case that the head was to run"
            for case in lost
        ]

    @cached_property
    def notes(self) -> list[str]:
        """A line for each other change, with its case."""
        notes = [f"{row.case_id}: {message}" for row in self.rows for message in row.notes()]
        alone = [case for case in self.only_base if case not in self._lost or not is_good(case)]
        return [*notes, *_missing("base", alone), *_missing("head", self.only_head)]

    @cached_property
    def _lost(self) -> list[CaseRecord]:
        """Cases that the head was to run and has no result of."""
        return [case for case in self.only_base if case.case_id in self.planned]

    @property
    def folders(self) -> list[str]:
        """The folders of the head's cases that got worse, on the machine that ran them."""
        worse = [row.head for row in self.rows if any(row.regressions())]
        return [case.tags["folder"] for case in worse if "folder" in case.tags]

    @property
    def heads(self) -> list[str]:
        """Both sweeps, and the versions that differ."""
        moved = provenance.moved(self.base.tags, self.head.tags)
        both = [row.facts for row in self.rows if row.facts]
        moved += [change for facts in both for change in comparable.moved(*facts)]
        return [
            f"base {self.base.sweep_id} ({self.base.experiment})",
            f"head {self.head.sweep_id} ({self.head.experiment})",
            f"moved: {_listed(list(dict.fromkeys(moved)))}",
        ]

    @property
    def verdict(self) -> str:
        """The last line."""
        count = len(self.regressions)
        result = f"{count} regression{'' if count == 1 else 's'}" if count else "no regression"
        return f"{result} in {len(self.rows)} cases"


def show(page: Page, console: Console) -> None:
    """Print the comparison."""
    for line in page.heads:
        console.print(Text(line))
    console.print(grid(COLUMNS, [_styled(row) for row in page.rows], right=COLUMNS[2:]))
    console.print(Text(LEGEND, style="dim"))
    for title, style, lines in _sections(page):
        console.print(Text(f"\n{title}", style="bold"))
        for line in lines:
            say(console, printable(line), style)
        for folder in page.folders if title == REGRESSIONS else ():
            say_whole(console, "look in", printable(folder))
    console.print(Text(f"\n{page.verdict}", style="bold red" if page.regressions else "bold green"))


def markdown(page: Page) -> str:
    """The comparison as Markdown, the regressions first."""
    lines = [f"# {page.verdict[0].upper()}{page.verdict[1:]}", ""]
    lines += [f"- {escaped(line)}" for line in page.heads]
    for title, _, messages in _sections(page):
        lines += ["", f"## {title}", "", *(f"- {escaped(line)}" for line in messages)]
        lines += [f"- look in {_code(folder)}" for folder in page.folders if title == REGRESSIONS]
    lines += ["", "## Cases", "", LEGEND, "", *table(COLUMNS, map(_values, page.rows))]
    return "\n".join(lines) + "\n"


def _sections(page: Page) -> Iterator[tuple[str, str, Sequence[str]]]:
    if page.regressions:
        yield REGRESSIONS, "red", page.regressions
    if page.notes:
        yield "Notes", "", page.notes


def _styled(row: Row) -> list[Text]:
    style = "red" if any(row.regressions()) else ""
    return [Text(value, style=style) for value in _values(row)]


def _values(row: Row) -> list[str]:
    differences = (row.largest.get(name) for name in ("loss", "grad_norm"))
    ratios = (row.ratios.get("step_seconds"), row.ratios.get("peak_memory_gib"), row.total_ratio)
    return [
        row.case_id,
        row.verdicts,
        *("-" if value is None else f"{value:.0e}" if value else "0" for value in differences),
        *("-" if value is None else f"{value:.2f}" for value in ratios),
    ]


def _listed(moved: Sequence[str]) -> str:
    """Those at the head of the list: over many hosts or code digests it may be long."""
    more = f" and {len(moved) - NAMED} more" if len(moved) > NAMED else ""
    return (", ".join(moved[:NAMED]) or "nothing") + more


def _missing(where: str, cases: Sequence[CaseRecord]) -> Iterator[str]:
    for case in cases:
        bad = "" if is_good(case) else f", {verdict_of(case)}"
        yield f"{case.case_id}: in the {where} alone{bad}"


def _code(text: str) -> str:
    """A path in one piece, whatever is in it."""
    return f"`{printable(text).replace('`', ' ').replace(chr(10), ' ')}`"
