"""The nights of an experiment, from the summaries in the runs of its sweeps.

One search for all of them: a year of nights has 12,000 runs of cases, which take MLflow a minute.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from sweep.errors import MachineryError, RequestError
from sweep.store import figures, nights
from sweep.store.nights import Night
from sweep.store.reader import Reader
from sweep.store.records import SweepRecord

RUNNING = "RUNNING"
HALF_A_DAY = 43_200.0
Enough = Callable[[Sequence[Night]], bool]


def sweeps(
    reader: Reader, latest: SweepRecord, last: int, anew: bool = False, write: bool = True
) -> list[Night]:
    """The sweeps of the `last` nights of the experiment of `latest` up to it, the oldest first.

    One without a summary, or all of them if `anew`, are made from the runs of their cases; with
    `write` their summary is put into their run. Raises MachineryError where the store is silent.
    """
    found: list[Night] = []
    before: float | None = None
    while len(grouped(found)) <= last:  # one more, since the oldest may not be whole
        page = _page(reader, latest, before, last + 1)
        found = [*(_night(reader, sweep, anew, write) for sweep in reversed(page)), *found]
        if len(page) <= last:
            break
        before = page[-1].started
    return [night for group in grouped(found)[-last:] for night in group]


def grouped(found: Sequence[Night]) -> list[list[Night]]:
    """Sweeps by night: shards of one start within half a day and have no case in common."""
    groups: list[list[Night]] = []
    for night in found:
        group = groups[-1] if groups else []
        known = {case_id for other in group for case_id in (*other.cases, *other.missing)}
        own = {*night.cases, *night.missing}
        if group and night.started - group[0].started < HALF_A_DAY and not known & own:
            group.append(night)
        else:
            groups.append([night])
    return groups


def _page(
    reader: Reader, latest: SweepRecord, before: float | None, limit: int
) -> list[SweepRecord]:
    """Those of the runs that have ended: of one that runs nothing is known yet."""
    until = latest.started + 0.001 if before is None else before
    return reader.sweeps_of(latest.experiment_id, latest.experiment, until, limit)


def _night(reader: Reader, sweep: SweepRecord, anew: bool, write: bool) -> Night:
    known = None if anew else nights.unpacked(sweep.tags)
    if known is None:
        known = _made_again(reader, sweep, write)
    cases, missing = known
    return Night(
        sweep_id=sweep.sweep_id,
        started=sweep.started,
        experiment=sweep.experiment,
        cases=cases,
        missing=missing,
        run_id=sweep.run_id,
        experiment_id=sweep.experiment_id,
    )


def _made_again(
    reader: Reader, sweep: SweepRecord, write: bool
) -> tuple[dict[str, nights.CaseNight], list[str]]:
    """From the runs of the sweep's cases."""
    runs = [run for run in reader.case_runs(sweep) if "verdict" in run.data.tags]
    cases = {
        run.data.tags["case_id"]: nights.case_night(run.data.tags, run.data.metrics) for run in runs
    }
    planned = _planned(reader, sweep)
    cases = {case_id: cases[case_id] for case_id in [*planned, *cases] if case_id in cases}
    missing = [case_id for case_id in planned if case_id not in cases]
    if write and sweep.status != RUNNING:
        with reader.location.writing(f"keep the summary of {sweep.sweep_id}"):
            tags = nights.packed(cases.values(), missing)
            figures.write(reader.location.client, sweep.run_id, {}, tags)
    return cases, missing


def _planned(reader: Reader, sweep: SweepRecord) -> list[str]:
    try:
        return list(map(str, reader.plan(sweep)["cases"]))
    except (MachineryError, RequestError, KeyError) as error:
        print(f"what {sweep.sweep_id} had planned is not known: {error}", file=sys.stderr)
        return []
