"""Facts of a case whose job did not get to write them, from what is on disk."""

from __future__ import annotations

from pathlib import Path

from sweep import clock, trainers
from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.case.identity import identity_of
from sweep.case.planned import Planned
from sweep.facts import DIED, Facts, JobEnd, LaunchFacts
from sweep.files import tail
from sweep.logs import root_cause
from sweep.run import origin
from sweep.run.launch import began
from sweep.trainers.base import LOG, Launch, all_launches, in_folders


def facts_of(
    planned: Planned, folder: Path, before: Facts | None, job_log: Path, end: JobEnd = DIED
) -> Facts:
    """What the launches' folders show, with why the job ended before the case did.

    `before` is what a job wrote that was told to stop, and not by us; `folder` is the sweep's.
    """
    try:
        return _found(planned, folder, before, job_log, end)
    except Exception as error:  # noqa: BLE001  # reading one case's files costs no other its result
        said = f"{end.reason}; its files cannot be read: {type(error).__name__}: {error}"
        return Facts(
            sweep_id=folder.name,
            case=planned.case,
            started=clock.now(),
            seconds=0.0,
            environment=_environment(planned),
            asked=facts_file.asked_of(planned.settings),
            attempts=planned.settings.attempts,
            error=said,
        )


def _found(
    planned: Planned, folder: Path, before: Facts | None, job_log: Path, end: JobEnd
) -> Facts:
    case_dir = folder / planned.case.id
    known = {launch.directory: launch for launch in before.launches} if before else {}
    expected = in_folders(all_launches(trainers.of(planned.settings), planned.settings), case_dir)
    launches = [
        _launch(planned, launch, directory, end)
        for launch, directory in expected
        if directory.is_dir()
    ]
    started = before.started if before else (case_dir / case_file.NAME).stat().st_mtime
    facts = Facts(
        sweep_id=folder.name,
        case=planned.case,
        started=started,
        seconds=before.seconds if before else max(0.0, clock.now() - started),
        environment=before.environment if before else _environment(planned),
        identity=before.identity if before else identity_of(planned.settings),
        vocab_size=before.vocab_size if before else None,
        asked=facts_file.asked_of(planned.settings),
        launches=[known.get(launch.directory, launch) for launch in launches],
        attempts=planned.settings.attempts,
        error=_error(before, job_log, end),
    )
    for launch in launches:
        origin.note_launch(facts, case_dir / launch.directory)
    return facts


def _environment(planned: Planned) -> dict[str, str]:
    return origin.provenance_of(planned.case.device, planned.config_dir) | origin.commit(
        planned.settings
    )


def _launch(planned: Planned, launch: Launch, directory: Path, end: JobEnd) -> LaunchFacts:
    started = began(directory)
    seconds = max(0.0, clock.now() - started)
    return LaunchFacts(
        name=launch.name,
        repeats=launch.repeats.name if launch.repeats else "",
        directory=f"{directory.parent.name}/{directory.name}",
        argv=[],
        first_step=launch.first_step,
        last_step=launch.last_step,
        timed_out=end.timed_out,
        limit_seconds=round(seconds) if end.timed_out else planned.settings.launch.timeout_seconds,
        started=started,
        seconds=seconds,
        log_tail=tail(directory / LOG),
        metrics=trainers.of(planned.settings).metrics(planned.settings, directory),
    )


def _error(before: Facts | None, job_log: Path, end: JobEnd) -> str:
    if before is not None and end is DIED:
        return f"the job was told to stop, and not by the sweep ({before.error})"
    complaint = root_cause.last_complaint(tail(job_log)) if job_log.name else ""
    return end.reason + (f": {complaint}" if complaint else "")
