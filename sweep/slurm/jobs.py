"""A sweep's jobs in Slurm: which case is which job, kept on disk, and following them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from sweep.errors import MachineryError
from sweep.facts import JobEnd
from sweep.files import write_json
from sweep.slurm import cluster
from sweep.slurm.cluster import Queue

RECORD = "slurm.json"  # in the sweep's folder


@dataclass(frozen=True)
class SlurmJob:
    """One job, an array's element or not."""

    id: str
    name: str  # that all jobs of one submission have
    log: str  # its standard error


@dataclass(frozen=True)
class Submitted:
    """A job as the session ends it; the launcher cancels all of a submission in one go."""

    job: SlurmJob
    queue: Queue

    def ask_to_stop(self) -> None:
        """Slurm was asked: SIGTERM, after KillWait SIGKILL; what waits never starts."""

    def is_over(self) -> bool:
        """Whether Slurm is done with it; yes if Slurm does not answer, as nothing helps then."""
        try:
            return not cluster.is_active(self.queue.state(self.job.id))
        except MachineryError:
            return True

    def clear(self) -> None:
        """Slurm does."""


def write_jobs(folder: Path, jobs: Mapping[str, SlurmJob]) -> None:
    """Add the jobs, by case id, to the sweep's record, which is there before the first of them."""
    known = {case_id: asdict(job) for case_id, job in {**read_jobs(folder), **jobs}.items()}
    write_json(folder / RECORD, known)


def read_jobs(folder: Path) -> dict[str, SlurmJob]:
    """Case id -> the last job that was submitted for it."""
    path = folder / RECORD
    if not path.is_file():
        return {}
    values = json.loads(path.read_text(encoding="utf-8"))
    return {case_id: SlurmJob(**value) for case_id, value in values.items()}


def active(folder: Path) -> list[str]:
    """The ids of a sweep's jobs that run or wait; raises MachineryError.

    By their names: a sweep that was killed while it submitted jobs has not recorded them.
    """
    if not (folder / RECORD).is_file():
        return []
    return [
        job_id
        for job_id, state, name in cluster.mine()
        if f"-{folder.name}-" in name and cluster.is_active(state)
    ]


class Listener(Protocol):
    """Who is told what becomes of the jobs, by their index: the session."""

    def started(self, index: int) -> None:
        """The job runs."""
        ...

    def ended(self, index: int, log: str, end: JobEnd) -> None:
        """The job has ended; `log` is its standard error."""
        ...

    def has_facts(self, index: int) -> bool:
        """Whether the job's facts can be read."""
        ...

    def tick(self) -> None:
        """Called once per look at the queue."""
        ...


@dataclass(frozen=True)
class Pace:
    """How a sweep follows its jobs; all in seconds."""

    poll: float  # between two looks
    grace: float  # for the files of a job that ended to appear here


class Follower:
    """Tells a session what becomes of its jobs."""

    def __init__(
        self, session: Listener, jobs: Mapping[int, SlurmJob], queue: Queue, pace: Pace
    ) -> None:
        self._session, self.left, self.queue, self._pace = session, dict(jobs), queue, pace
        self.states: dict[int, str] = {}
        self._over_since: dict[int, float] = {}

    def run(self) -> None:
        """Until all have ended; raises MachineryError if Slurm falls silent."""
        while self.left:
            self.look()
            self._session.tick()
            if self.left:
                time.sleep(self._pace.poll)

    def run_ended(self) -> None:
        """Only those that have ended by now; the others stay in `left`, with their `states`."""
        self.look()
        while any(not cluster.is_active(self.states[index]) for index in self.left):
            time.sleep(self._pace.poll)
            self.look()

    def look(self) -> None:
        """Ask once; conclude what has ended and left its files."""
        for index, job in list(self.left.items()):
            before = self.states.get(index)
            self.states[index] = self.queue.state(job.id)
            if self.states[index] == cluster.RUNNING != before:
                self._session.started(index)
            if self._is_complete(index):
                del self.left[index]
                self._session.ended(index, job.log, cluster.end_of(self.states[index], job.log))

    def _is_complete(self, index: int) -> bool:
        """Over, and with its facts; they may come late where files are shared over a network."""
        if cluster.is_active(self.states[index]):
            self._over_since.pop(index, None)
            return False
        since = self._over_since.setdefault(index, time.monotonic())
        return self._session.has_facts(index) or time.monotonic() - since >= self._pace.grace
