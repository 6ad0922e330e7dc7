"""`python -m sweep.compare base=... head=...`: exits 1 on a regression, so it can gate a change."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from sweep import judge
from sweep.checks import thresholds
from sweep.cli import arguments
from sweep.cli.arguments import EXPERIMENT, OUTPUTS, Argument, Usage
from sweep.compare import page
from sweep.compare.page import Page
from sweep.errors import RequestError
from sweep.files import ConfDirs, write_text
from sweep.store import Reader, SweepRecord
from sweep.store.reader import PINNED

PREVIOUS = "previous"
USAGE = Usage(
    "sweep.compare",
    "Two sweeps side by side. Exits 1 on a regression: a case that passed and no longer does, or"
    "\nthat the head was to run and did not, a new graph break, losses or gradient norms beyond the"
    "\nthresholds of check drift with the same libraries and data, a ratio beyond a limit of check"
    "\ncost; else 0.",
    "python -m sweep.compare base=previous head=latest experiment=nightly",
    (
        Argument(
            "base",
            "a sweep's id, or latest, pinned, or previous (with a case of the head)",
            PREVIOUS,
        ),
        Argument("head", "a sweep's id, or latest", "latest"),
        Argument("markdown", "write it there as Markdown too; - for the terminal", optional=True),
        EXPERIMENT,
        OUTPUTS,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two sweeps as the command line says; returns the exit code."""
    return arguments.run(USAGE, _compare, argv)


def _compare(values: dict[str, str], conf: ConfDirs) -> int:
    judge.ready(conf)
    reader = Reader.at(Path(values["outputs"]))
    head = reader.find(values["head"], values.get("experiment"))
    base = _base(reader, values["base"], head, values.get("experiment"))
    if base.run_id == head.run_id:
        raise RequestError(f"base and head are both {head.sweep_id}")
    planned = reader.plan(head)["cases"]
    cases = reader.cases(base), reader.cases(head)
    compared = Page.of(base, head, *cases, thresholds.table(conf), planned)
    if not compared.rows and not compared.regressions:
        raise RequestError(f"{base.sweep_id} and {head.sweep_id} have no case in common")
    _tell(compared, values.get("markdown"))
    return 1 if compared.regressions else 0


def _base(reader: Reader, name: str, head: SweepRecord, experiment: str | None) -> SweepRecord:
    if name == PINNED:
        pinned = reader.pinned_sweeps(experiment or head.experiment)
        if not pinned:
            raise RequestError(f"no sweep of {head.experiment} is pinned: sweep.baseline pin SWEEP")
        return next(reader.like(head, pinned), pinned[0])
    if name != PREVIOUS:
        return reader.find(name, experiment)
    before = reader.before(head)
    if before is None:
        raise RequestError(
            f"{head.sweep_id} is the first sweep of {head.experiment} with one of its cases;"
            " name a base"
        )
    return before


def _tell(compared: Page, where: str | None) -> None:
    if where == "-":
        print(page.markdown(compared), end="")
        return
    page.show(compared, Console())
    if where is not None:
        write_text(Path(where), page.markdown(compared))


if __name__ == "__main__":
    sys.exit(main())
