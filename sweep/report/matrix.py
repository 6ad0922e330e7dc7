"""Results as one matrix: architectures down, layouts and features across."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from urllib.parse import quote

from sweep.case.labels import Case
from sweep.judge import Verdict
from sweep.report.looks import LOOKS
from sweep.report.result import Result, printable

NOT_RUN = "not run"
SHORT = 64  # characters of a finding in a cell

Link = Callable[[Result], str]
Place = tuple[str, str, str]  # arch, layout, feature


@dataclass(frozen=True)
class Cell:
    """One case in the matrix; a place holds several that differ only in other settings."""

    case: Case
    result: Result | None = None  # None: planned, and without a result

    @property
    def word(self) -> str:
        """The verdict."""
        return self.result.judgement.verdict.value if self.result else NOT_RUN

    @property
    def distinction(self) -> str:
        """What its id says beyond the names of its place: `seed_1`, or a fault."""
        case = self.case
        return case.id.removeprefix(f"{case.arch}-{case.layout}-{case.feature}").strip("-")

    @property
    def said(self) -> str:
        """The verdict as it is read: `passed, not compared`."""
        return self.result.judgement.words if self.result else NOT_RUN

    @property
    def symbol(self) -> str:
        """The verdict's symbol."""
        return LOOKS[Verdict(self.word)].symbol if self.result else "·"

    @property
    def finding(self) -> str:
        """The worst finding, in short."""
        message = " ".join(printable(self.result.message).split()) if self.result else ""
        return textwrap.shorten(message, SHORT, placeholder=" …") or message[:SHORT]


@dataclass(frozen=True)
class Matrix:
    """The cases of a sweep by arch, layout and feature, each in order of first appearance."""

    archs: Sequence[str]
    columns: Sequence[tuple[str, str]]  # layout, feature; the columns of a layout side by side
    cells: dict[Place, list[Cell]]

    @property
    def layouts(self) -> list[tuple[str, int]]:
        """Each layout with the number of its columns."""
        groups = groupby(self.columns, key=lambda column: column[0])
        return [(layout, len(list(columns))) for layout, columns in groups]

    @property
    def words(self) -> dict[str, int]:
        """Verdict -> number of cases, the bad ones first."""
        words = [cell.word for cells in self.cells.values() for cell in cells]
        order = [*(verdict.value for verdict in LOOKS), NOT_RUN]
        return {word: words.count(word) for word in order if word in words}

    def at(self, arch: str, column: tuple[str, str]) -> list[Cell]:
        """The cases of a place; empty if the sweep has none there."""
        return self.cells.get((arch, *column), [])


def matrix(results: Sequence[Result], missing: Sequence[Case] = ()) -> Matrix:
    """Results, and planned cases without one, by place."""
    placed = [*(Cell(result.case, result) for result in results), *map(Cell, missing)]
    cells: dict[Place, list[Cell]] = {}
    for cell in placed:
        cells.setdefault((cell.case.arch, cell.case.layout, cell.case.feature), []).append(cell)
    archs = list(dict.fromkeys(arch for arch, _, _ in cells))
    columns = list(dict.fromkeys((layout, feature) for _, layout, feature in cells))
    layouts = list(dict.fromkeys(layout for layout, _ in columns))
    columns.sort(key=lambda column: layouts.index(column[0]))  # stable: features keep their order
    return Matrix(archs, columns, cells)


def file_link(result: Result) -> str:
    """For a page in the sweep's folder: the run in the UI of its server, else the case's folder.

    A SQLite store has no address, since whoever starts its UI chooses the port.
    """
    run = result.in_mlflow
    address = run.address if run else ""
    return address or result.link or f"./{quote(result.case.id, safe='')}/"


def note_link(result: Result) -> str:
    """For a note in the MLflow UI: relative, so that it works at any address."""
    run = result.in_mlflow
    return run.route if run else ""


def no_link(_result: Result) -> str:
    """For a note that would otherwise be too long."""
    return ""
