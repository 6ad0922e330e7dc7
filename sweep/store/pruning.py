"""Removes what is large from old runs of MLflow; facts, verdicts and figures stay."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

from sweep.store.location import Location
from sweep.store.reader import Reader
from sweep.store.records import SweepRecord

KEPT = frozenset({"case.json", "facts.json", "findings.json"})
PRUNED = "pruned"  # a tag of a sweep's run whose cases are pruned
A_DAY = 86_400.0


def pinned(location: Location) -> set[str]:
    """The sweeps that are pinned as baselines; none where nothing is recorded."""
    if not location.exists:
        return set()
    return {sweep.sweep_id for sweep in Reader(location).pinned_sweeps()}


def prune(location: Location, keep: int, spared: Collection[str], is_dry: bool) -> int:
    """Remove logs, plots and the like of the cases beyond the last `keep` days of each suite.

    Returns the number of runs; raises MachineryError.
    """
    if not location.exists:
        return 0
    reader = Reader(location)
    count = 0
    with location.answering("list its experiments"):
        experiments = location.client.search_experiments()
    for experiment in experiments:
        sweeps = reader.sweeps_of(str(experiment.experiment_id), str(experiment.name), limit=None)
        for sweep in _beyond(sweeps, keep):
            if sweep.sweep_id not in spared and PRUNED not in sweep.tags:
                count += _prune(reader, sweep, is_dry)
    return count


def _beyond(sweeps: list[SweepRecord], keep: int) -> list[SweepRecord]:
    """Those that have ended and are not of the last days."""
    days = sorted({int(sweep.started // A_DAY) for sweep in sweeps}, reverse=True)
    kept = set(days[:keep])
    over = [sweep for sweep in sweeps if sweep.status not in ("RUNNING", "SCHEDULED")]
    return [sweep for sweep in over if int(sweep.started // A_DAY) not in kept]


def _prune(reader: Reader, sweep: SweepRecord, is_dry: bool) -> int:
    location, runs = reader.location, reader.every_run(sweep)
    if is_dry:
        return len(runs)
    with location.writing(f"prune {sweep.sweep_id}"):
        for run in runs:
            _remove(location, run)
        location.client.set_tag(sweep.run_id, PRUNED, "true")
    return len(runs)


def _remove(location: Location, run: Any) -> None:
    """The run's artifacts but KEPT."""
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    files = get_artifact_repository(run.info.artifact_uri, location.uri)
    for name in [file.path for file in files.list_artifacts() if file.path not in KEPT]:
        try:
            files.delete_artifacts(name)
        except NotImplementedError:
            print(f"{run.info.artifact_uri} deletes no single file: {name} stays", file=sys.stderr)
            return
