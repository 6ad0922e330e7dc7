"""How runs end: a sweep's own, and those that a killed sweep left."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.case.folder import PLAN, is_gone, read_plan
from sweep.report import FORMATS, Result, not_run, sweep_note
from sweep.store import entries, figures

if TYPE_CHECKING:
    from mlflow import MlflowClient

HISTORY = "history.html"  # in the folder of a sweep: its cases over the nights
LOGS = (".log", ".jsonl", ".md")  # figures are whole in facts.json
LOG_LIMIT, LOG_HEAD = 1_000_000, 300_000  # bytes kept in MLflow, and how many of them at the start


@dataclass(frozen=True)
class End:
    """How a sweep ended: cases of one that was interrupted have no result."""

    interrupted: bool = False
    unfinished: bool = False  # cases still run, and are recorded another time


def finish(
    client: MlflowClient, run_id: str, folder: Path, results: Sequence[Result], end: End
) -> None:
    """End a sweep's own run; `folder` holds its reports."""
    missing = not_run(folder, results)
    note = sweep_note(results, missing, entries.TAG_LIMIT)
    plan = read_plan(folder)
    values = figures.figures(results, missing, float(plan["started"]))
    tags = {entries.NOTE: note, **figures.summary(results, missing, plan["environment"])}
    figures.write(client, run_id, values, tags)
    log_files(client, run_id, folder, (PLAN, *FORMATS, HISTORY))
    if end.unfinished:
        client.update_run(run_id, status="SCHEDULED")
        return
    good = all(result.judgement.verdict.good for result in results)
    ended = [times(result, 1)[1] for result in results if result.facts]
    status = "KILLED" if end.interrupted else "FINISHED" if good else "FAILED"
    client.set_terminated(run_id, status, max(ended, default=None))


def end_dead_runs(client: MlflowClient, experiment_id: str) -> None:
    """Runs that a killed sweep left RUNNING are KILLED; nobody else will say so.

    A driver on another machine is taken for dead after a day.
    """
    left = client.search_runs(
        [experiment_id], "attributes.status = 'RUNNING' and tags.driver LIKE '%:%'"
    )
    for run in left:
        driver, run_id = run.data.tags["driver"], run.info.run_id
        if not is_gone(driver):
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
            if not path.resolve().is_relative_to(folder.resolve()):  # a link that a trainer made
                continue
            inside = path.parent.relative_to(folder).as_posix()
            with shortened(path) as kept:
                client.log_artifact(run_id, str(kept), None if inside == "." else inside)


@contextmanager
def shortened(path: Path) -> Iterator[Path]:
    """The file; of a log of any size a copy of its head and its tail, under its name."""
    size = path.stat().st_size
    if path.suffix not in LOGS or size <= LOG_LIMIT:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        with path.open("rb") as source, copy.open("wb") as target:
            target.write(source.read(LOG_HEAD))
            left = size - LOG_LIMIT
            target.write(f"\n[{left} bytes left out: {path}]\n".encode())
            source.seek(LOG_HEAD + left)
            target.write(source.read(LOG_LIMIT - LOG_HEAD))
        yield copy


def times(result: Result, sweep_started: int) -> tuple[int, int]:
    """Start and end in milliseconds; what never ran did so when the sweep began."""
    facts = result.facts
    if facts is None:
        return sweep_started, sweep_started
    return milliseconds(facts.started), milliseconds(facts.started + facts.seconds)


def milliseconds(seconds: float) -> int:
    """A time for MLflow, which takes 0 for now."""
    return max(1, int(seconds * 1000))
