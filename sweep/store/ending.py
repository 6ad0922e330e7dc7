"""How runs end: a sweep's own, and those that a killed sweep left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.case.folder import PLAN, is_dead, is_old
from sweep.report import Result, not_run, sweep_note
from sweep.store import entries

if TYPE_CHECKING:
    from mlflow import MlflowClient

SWEEP_FILES = (PLAN, "summary.md", "matrix.html", "junit.xml")


@dataclass(frozen=True)
class End:
    """How a sweep ended: cases of one that was interrupted have no result."""

    interrupted: bool = False
    unfinished: bool = False  # cases still run, and are recorded another time


def finish(
    client: MlflowClient, run_id: str, folder: Path, results: Sequence[Result], end: End
) -> None:
    """End a sweep's own run; `folder` holds its reports."""
    note = sweep_note(results, not_run(folder, results), entries.TAG_LIMIT)
    client.set_tag(run_id, entries.NOTE, note)
    log_files(client, run_id, folder, SWEEP_FILES)
    if end.unfinished:
        client.update_run(run_id, status="SCHEDULED")
        return
    good = all(result.judgement.verdict.good for result in results)
    ended = [times(result, 1)[1] for result in results if result.facts]
    status = "KILLED" if end.interrupted else "FINISHED" if good else "FAILED"
    client.set_terminated(run_id, status, max(ended, default=None))


def end_dead_runs(client: MlflowClient, experiment_id: str) -> None:
    """Runs that a killed sweep left RUNNING are KILLED; nobody else will say so.

    Of a driver on another machine nobody knows: it is taken for dead after a day.
    """
    left = client.search_runs(
        [experiment_id], "attributes.status = 'RUNNING' and tags.driver LIKE '%:%'"
    )
    for run in left:
        driver, run_id = run.data.tags["driver"], run.info.run_id
        if not is_dead(driver) and not is_old(driver):
            continue
        # Asked again: one that ended between the search and now has ended its run as well, and
        # another may have taken it up.
        now = client.get_run(run_id)
        if now.info.status == "RUNNING" and now.data.tags.get("driver") == driver:
            client.set_terminated(run_id, "KILLED")


def log_files(client: MlflowClient, run_id: str, folder: Path, patterns: Sequence[str]) -> None:
    """The files of a folder that match, as artifacts in the same places."""
    for pattern in patterns:
        for path in sorted(filter(Path.is_file, folder.glob(pattern))):  # a pipe is waited for
            inside = path.parent.relative_to(folder).as_posix()
            client.log_artifact(run_id, str(path), None if inside == "." else inside)


def times(result: Result, sweep_started: int) -> tuple[int, int]:
    """Start and end in milliseconds; what never ran did so when the sweep began."""
    facts = result.facts
    if facts is None:
        return sweep_started, sweep_started
    return milliseconds(facts.started), milliseconds(facts.started + facts.seconds)


def milliseconds(seconds: float) -> int:
    """A time for MLflow, which takes 0 for now."""
    return max(1, int(seconds * 1000))
