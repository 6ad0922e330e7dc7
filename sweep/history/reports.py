"""A sweep's reports, with what the nights before it say of its cases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sweep import report
from sweep.case.folder import read_plan
from sweep.files import write_text
from sweep.history import html
from sweep.history.case import CaseHistory
from sweep.history.view import View, day
from sweep.report import Result
from sweep.report.past import Failing, Past
from sweep.store import Reader, figures, past
from sweep.store.nights import Night

LAST = 30  # nights on the page


def write(reader: Reader, folder: Path, results: Sequence[Result]) -> Past:
    """Write every report of the sweep in `folder`; returns what they say of the nights before.

    Raises MachineryError where the store is silent.
    """
    view = view_of(reader, folder, results)
    known = past_of(view, {result.case.id for result in results})
    report.write(folder, results, known)
    write_text(folder / html.NAME, html.page(view))
    return known


def view_of(reader: Reader, folder: Path, results: Sequence[Result]) -> View:
    """The nights up to this sweep, whose own part is that of `results`."""
    plan = read_plan(folder)
    sweep = reader.find(str(plan["sweep_id"]), str(plan["experiment"]))
    before = past.sweeps(reader, sweep, LAST, write=False)
    own = Night(
        sweep_id=sweep.sweep_id,
        started=sweep.started,
        experiment=sweep.experiment,
        cases={
            result.case.id: figures.case_night(result, plan["environment"])
            for result in results
            if not result.interrupted
        },
        missing=[case.id for case in report.not_run(folder, results)],
        run_id=sweep.run_id,
        experiment_id=sweep.experiment_id,
    )
    return View.of([*(night for night in before if night.sweep_id != own.sweep_id), own])


def past_of(view: View, case_ids: set[str]) -> Past:
    """What the view says of these cases; the last night is that of the report."""
    cases = [case for case in view.cases if case.case_id in case_ids and case.ran]
    return Past(
        failing={case.case_id: _failing(case) for case in cases if case.failing},
        before={case.case_id: case.ran[-2].verdict for case in cases if len(case.ran) > 1},
        page=html.NAME,
    )


def _failing(case: CaseHistory) -> Failing:
    first, good = case.failing[0], case.last_good
    count = len(case.failing)
    before = case.ran[-count - 1] if len(case.ran) > count else None
    return Failing(
        since=day(first.night.started),
        nights=count,
        is_open=before is None and count > 1,
        last_good=good.night.sweep_id if good else "",
        moved=case.moved_between(before, first) if before else (),
    )
