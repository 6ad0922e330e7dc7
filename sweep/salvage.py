"""Facts of a case whose job died before it could write them, from what is on disk."""

from __future__ import annotations

import time
from pathlib import Path

from sweep import job, trainers
from sweep.facts import Facts, LaunchFacts
from sweep.files import tail
from sweep.launch import LOG
from sweep.plan import Planned
from sweep.provenance import environment


def facts_of(one: Planned, sweep_id: str, case_dir: Path, job_log: Path) -> Facts:
    """What the launches' folders show; the job's own log says why, if anything does."""
    launches = sorted((case_dir / "launches").glob("*"))
    started = (case_dir / "case.json").stat().st_mtime
    return Facts(
        sweep_id=sweep_id,
        case=one.case,
        started=started,
        seconds=time.time() - started,
        environment=environment(one.case.device),
        asked=job.asked_of(one.settings),
        launches=[_launch(one, directory) for directory in launches],
        error="the job died without leaving a result" + _said(job_log),
    )


def _launch(one: Planned, directory: Path) -> LaunchFacts:
    trainer = trainers.load(one.settings.trainer.name)
    expected = {launch.name: launch for launch in trainer.launches(one.settings)}
    launch = expected[directory.name.partition("_")[2]]
    started = directory.stat().st_ctime
    return LaunchFacts(
        name=launch.name,
        directory=f"{directory.parent.name}/{directory.name}",
        argv=[],
        first_step=launch.first_step,
        last_step=launch.last_step,
        limit_seconds=one.settings.launch.timeout_seconds,
        started=started,
        seconds=time.time() - started,
        log_tail=tail(directory / LOG),
        metrics=trainer.metrics(one.settings, directory),
    )


def _said(log: Path) -> str:
    lines = [line for line in tail(log).splitlines() if line.strip()] if log.name else []
    return f": {lines[-1].strip()}" if lines else ""
