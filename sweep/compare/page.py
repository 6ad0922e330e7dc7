"""The comparison of two sweeps, on the terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep import provenance
from sweep.checks import cost
from sweep.compare.rows import Row, is_good, pair, verdict_of
from sweep.facts import Facts
from sweep.report.lines import say, say_whole
from sweep.report.markdown import escaped
from sweep.report.result import printable
from sweep.store import CaseRecord, SweepRecord

COLUMNS = ("case", "verdict", "loss", "grad norm", "step", "memory", "time")
WIDE = ("case", "verdict", "last loss", "loss differs by", "grad norm differs by",
        "seconds a step", "peak GiB", "seconds in all")  # fmt: skip
LEGEND = (
    "loss, grad norm: the largest relative difference over the steps; step, memory, time: head to"
    " base"
)
REGRESSIONS = "Regressions"
WIDE_LEGEND = "Base > head; differences are the largest relative ones over the steps."


@dataclass(frozen=True)
class Page:
    """What is told of two sweeps."""

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
        planned: Sequence[str] = (),
    ) -> Page:  # fmt: skip
        """Both sweeps with their cases."""
        return cls(base, head, *pair(base_cases, head_cases), planned)

    @cached_property
    def regressions(self) -> list[str]:
        """What got worse, with its case."""
        found = [f"{row.case_id}: {one}" for row in self.rows for one in row.regressions()]
        return found + [f"{one.case_id}: {verdict_of(one)} > no result, of a case that the head was"
                        " to run" for one in self._lost if is_good(one)]  # fmt: skip

    @cached_property
    def notes(self) -> list[str]:
        """What else is to be said, with its case."""
        said = [f"{row.case_id}: {one}" for row in self.rows for one in row.notes()]
        alone = [one for one in self.only_base if one not in self._lost or not is_good(one)]
        return [*said, *_missing("base", alone), *_missing("head", self.only_head)]

    @cached_property
    def _lost(self) -> list[CaseRecord]:
        """What a sweep that was cut off did not come to, unlike what nobody asked it for."""
        return [one for one in self.only_base if one.case_id in self.planned]

    @property
    def folders(self) -> list[str]:
        """Where the head's cases that got worse left their files, on its machine."""
        worse = [row.head for row in self.rows if any(row.regressions())]
        return [one.tags["folder"] for one in worse if "folder" in one.tags]

    @property
    def heads(self) -> list[str]:
        """What is compared, and which versions moved."""
        moved = provenance.moved(self.base.tags, self.head.tags)
        return [
            f"base {self.base.sweep_id} ({self.base.experiment})",
            f"head {self.head.sweep_id} ({self.head.experiment})",
            f"moved: {moved or 'nothing'}",
        ]

    @property
    def verdict(self) -> str:
        """The last line."""
        count = len(self.regressions)
        found = f"{count} regression{'' if count == 1 else 's'}" if count else "no regression"
        return f"{found} in {len(self.rows)} cases"


def show(page: Page, console: Console) -> None:
    """Print the page."""
    for line in page.heads:
        console.print(Text(line))
    console.print(_table(page.rows))
    console.print(Text(LEGEND, style="dim"))
    for title, style, lines in _sections(page):
        console.print(Text(f"\n{title}", style="bold"))
        for line in lines:
            say(console, printable(line), style)
        for folder in page.folders if title == REGRESSIONS else ():
            say_whole(console, "look in", printable(folder))
    console.print(Text(f"\n{page.verdict}", style="bold red" if page.regressions else "bold green"))


def markdown(page: Page) -> str:
    """The page as Markdown, the regressions first."""
    lines = [f"# {page.verdict[0].upper()}{page.verdict[1:]}", ""]
    lines += [f"- {escaped(line)}" for line in page.heads]
    for title, _, said in _sections(page):
        lines += ["", f"## {title}", "", *(f"- {escaped(line)}" for line in said)]
        lines += [f"- look in {_code(one)}" for one in page.folders if title == REGRESSIONS]
    lines += ["", "## Cases", "", WIDE_LEGEND, "", f"| {' | '.join(WIDE)} |"]
    lines += ["|" + " --- |" * len(WIDE)]
    lines += [f"| {' | '.join(_wide(row))} |" for row in page.rows]
    return "\n".join(lines) + "\n"


def _sections(page: Page) -> Iterator[tuple[str, str, Sequence[str]]]:
    if page.regressions:
        yield REGRESSIONS, "red", page.regressions
    if page.notes:
        yield "Notes", "", page.notes


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold underline")
    for name in COLUMNS:
        is_wide = name in ("case", "verdict")
        table.add_column(name, overflow="fold", no_wrap=not is_wide,
                         justify="left" if is_wide else "right")  # fmt: skip
    for row in rows:
        style = "red" if any(row.regressions()) else ""
        table.add_row(*(Text(value, style=style) for value in _values(row)))
    return table


def _values(row: Row) -> list[str]:
    ratios = [row.ratios.get("step_seconds"), row.ratios.get("peak_memory_gib"), row.total_ratio]
    shown = ("-" if one is None else f"{one:.2f}" for one in ratios)
    return [row.case_id, row.verdicts, *_differences(row, ".0e"), *shown]


def _wide(row: Row) -> list[str]:
    taken = (_both(row, cost.step_seconds, ".3g"), _both(row, cost.peak_memory_gib, ".3g"),
             _both(row, lambda facts: facts.seconds, ".0f"))  # fmt: skip
    names = escaped(row.case_id), escaped(row.verdicts)
    return [*names, _both(row, _last_loss, ".6f"), *_differences(row, ".1e"), *taken]


def _differences(row: Row, digits: str) -> list[str]:
    found = (row.largest.get(name) for name in ("loss", "grad_norm"))
    return ["-" if one is None else f"{one:{digits}}" if one else "0" for one in found]


def _both(row: Row, figure: Callable[[Facts], float | None], digits: str) -> str:
    """`1.1 > 1.5`, or once where the two look the same."""
    values = [figure(facts) for facts in row.facts or ()]
    shown = ["-" if value is None else f"{value:{digits}}" for value in values]
    return " > ".join(dict.fromkeys(shown)) or "-"


def _last_loss(facts: Facts) -> float | None:
    return facts.steps[-1].loss if facts.steps else None


def _missing(where: str, cases: Sequence[CaseRecord]) -> Iterator[str]:
    for one in cases:
        bad = "" if is_good(one) else f", {verdict_of(one)}"
        yield f"{one.case_id}: in the {where} alone{bad}"


def _code(text: str) -> str:
    """A path in one piece, whatever is in it."""
    return f"`{printable(text).replace('`', ' ').replace(chr(10), ' ')}`"
