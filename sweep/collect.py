"""python -m sweep.collect: judge those cases of a detached sweep that have ended."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from sweep.case import folder
from sweep.case.machine import Machine
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, SWEEP, Argument, Usage
from sweep.errors import RequestError
from sweep.files import ConfDirs
from sweep.plan.earlier import Earlier, check_ended
from sweep.session.driver import Session
from sweep.slurm.cluster import UNKNOWN, Queue
from sweep.slurm.jobs import Follower, Pace, SlurmJob, Submitted, read_jobs

POLL_SECONDS = 5.0
PATIENCE_SECONDS = 60.0
USAGE = Usage(
    "sweep.collect",
    "Record, judge and report the cases of a detached sweep that have ended; say which still run.",
    "python -m sweep.collect sweep=latest",
    [
        SWEEP,
        OUTPUTS,
        Argument("wait", "true: until every case has ended", "false"),
        Argument("grace", "seconds for the files of a job that died to appear", "30"),
    ],
)


def main(values: dict[str, str], conf: ConfDirs) -> int:
    """Collect, report, and return the exit code: 3 while cases run and none has failed."""
    if values["wait"] not in ("true", "false"):
        raise RequestError(f"wait={values['wait']}: say true or false")
    grace = arguments.seconds("grace", values["grace"])
    sweep_folder = folder.find(Path(values["outputs"]), values["sweep"])
    jobs = read_jobs(sweep_folder)
    if not jobs:
        raise RequestError(
            f"sweep {sweep_folder.name} was not submitted to Slurm; see {sweep_folder}/summary.md"
        )
    check_ended(sweep_folder)
    plan = folder.read_plan(sweep_folder)
    planned = folder.planned_in(sweep_folder)
    if conf.own is not None:  # else as they were submitted
        planned = [replace(case, config_dir=str(conf.own)) for case in planned]
    machine = Machine.having(planned[0].case.device)
    session = Session.begin(
        planned, machine, str(plan["experiment"]), Earlier(sweep_folder, reruns=False)
    )
    wait = values["wait"] == "true"
    follower = _follower(session, jobs, Pace(POLL_SECONDS, grace), PATIENCE_SECONDS if wait else 0)
    code = session.execute(lambda: _follow(session, follower, wait))
    for index, job in follower.left.items():
        state = follower.states.get(index, UNKNOWN)
        print(f"{session.runnable[index].case.id}: {state}, job {job.id}")
    return code


def _follower(session: Session, jobs: dict[str, SlurmJob], pace: Pace, patience: float) -> Follower:
    numbered = {
        index: jobs[planned.case.id]
        for index, planned in enumerate(session.runnable)
        if planned.case.id in jobs
    }
    queue = Queue({job.name for job in numbered.values()}, pace.poll, patience)
    return Follower(session, numbered, queue, pace)


def _follow(session: Session, follower: Follower, wait: bool) -> None:
    for index, job in follower.left.items():
        session.submitted(index, Submitted(job, follower.queue))
    try:
        if wait:
            follower.run()
        else:
            follower.run_ended()
    finally:
        session.leave()  # even if interrupted: the jobs go on


if __name__ == "__main__":
    sys.exit(arguments.run(USAGE, main))
