"""What the sweep asks of Slurm, through its commands.

Not sacct: it needs a database that many clusters lack. squeue knows a job for some minutes
(MinJobAge) after its end, and `Queue` asks more often than that.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Collection
from pathlib import Path

from sweep.errors import MachineryError
from sweep.facts import DIED, JobEnd
from sweep.files import tail

ANSWER_SECONDS = 60.0  # for a command to come back
GONE = "GONE"  # Slurm knows the job no longer
UNKNOWN = "UNKNOWN"  # Slurm has not answered yet
RUNNING = "RUNNING"
_ACTIVE = {
    UNKNOWN, "PENDING", "CONFIGURING", RUNNING, "SUSPENDED", "STOPPED", "COMPLETING", "STAGE_OUT",
    "SIGNALING", "RESIZING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
}  # fmt: skip
_ENDS = {
    "CANCELLED": JobEnd("the job was cancelled in Slurm"),
    "TIMEOUT": JobEnd("the job ran into Slurm's time limit", timed_out=True),
    "DEADLINE": JobEnd("the job ran into its deadline in Slurm", timed_out=True),
    "PREEMPTED": JobEnd("the job was preempted by another in Slurm"),
    "NODE_FAIL": JobEnd("the job's node failed"),
    "BOOT_FAIL": JobEnd("the job's node did not boot"),
    "OUT_OF_MEMORY": JobEnd("the job went beyond the memory that it asked Slurm for"),
}

NEVER_RAN = JobEnd("the job was cancelled in Slurm before it started")

_LOGGED = {
    "DUE TO TIME LIMIT": "TIMEOUT",
    "DUE TO PREEMPTION": "PREEMPTED",
    "DUE TO NODE FAILURE": "NODE_FAIL",
    "CANCELLED AT": "CANCELLED",
}


def is_active(state: str) -> bool:
    """Whether a job in that state runs, or may run yet."""
    return state in _ACTIVE


def end_of(state: str, log: str) -> JobEnd:
    """Why a job ended in that state; one that Slurm finds nothing wrong with just died.

    What Slurm no longer knows, it wrote into the job's log. It opens that when the job starts, so
    a job without one never did: a task of an array that waits leaves no trace when it is cancelled.
    """
    if state == GONE and log and not Path(log).exists():
        return NEVER_RAN
    if state == GONE:
        said = tail(Path(log))
        state = next((name for words, name in _LOGGED.items() if words in said), GONE)
    return _ENDS.get(state, DIED)


def max_array_size() -> int:
    """How many jobs one array may have; raises MachineryError."""
    config = _ask("scontrol", "show", "config")
    match = re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE)
    return max(1, int(match.group(1))) if match else 1


def boot_time() -> str:
    """When Slurm's controller was started, as it says; raises MachineryError."""
    config = _ask("scontrol", "show", "config")
    match = re.search(r"^BOOT_TIME\s*=\s*(\S+)", config, re.MULTILINE)
    return match.group(1) if match else ""


def states(names: Collection[str]) -> dict[str, str]:
    """Id -> state of every job of these names that Slurm knows; raises MachineryError."""
    lines = _ask("squeue", "--noheader", "--array", "--states=all", "--format=%i|%T",
                 f"--name={','.join(names)}")  # fmt: skip
    return dict(line.strip().split("|") for line in lines.splitlines() if "|" in line)


def mine() -> list[tuple[str, str, str]]:
    """Id, state and name of every job of this user that Slurm knows; raises MachineryError."""
    lines = _ask("squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%j",
                 f"--user={os.getuid()}")  # fmt: skip
    rows = (line.strip().split("|", 2) for line in lines.splitlines() if line.count("|") >= 2)
    return [(job_id, state, name) for job_id, state, name in rows]


def steps(job_id: str, name: str) -> list[str]:
    """The ids of a job's running steps of that name; raises MachineryError."""
    lines = _ask("squeue", "--steps", "--noheader", f"--jobs={job_id}", "--format=%i|%j")
    rows = (line.strip().split("|") for line in lines.splitlines() if "|" in line)
    return [step for step, known in rows if known == name]


def cancel(*which: str) -> None:
    """scancel, as far as it goes: `which` are job ids, or `--name=...`."""
    with contextlib.suppress(MachineryError):
        _ask("scancel", *which)


class Queue:
    """Where the jobs of these names are, by an answer of Slurm at most `every` seconds old.

    It may be older while Slurm does not answer, but not by more than `patience` seconds. As long a
    job that was active is not taken for gone where the controller was started anew meanwhile: it
    may answer before it knows its jobs again.
    """

    def __init__(self, names: Collection[str], every: float, patience: float) -> None:
        self.names, self._every, self._patience = sorted(names), every, patience
        self._asked = float("-inf")
        self._answered = time.monotonic()
        self._states: dict[str, str] | None = None  # until Slurm has answered
        self._booted = ""  # the controller, when it last knew all that it had known before
        self._lost_since: float | None = None

    def state(self, job_id: str) -> str:
        """The state of one of them, GONE or UNKNOWN; MachineryError if Slurm is silent for long."""
        if time.monotonic() - self._asked >= self._every:
            self._ask()
        return UNKNOWN if self._states is None else self._states.get(job_id, GONE)

    def _ask(self) -> None:
        try:
            self._take(states(self.names))
            self._answered = time.monotonic()
        except MachineryError:
            if time.monotonic() - self._answered > self._patience:
                raise
        finally:
            self._asked = time.monotonic()

    def _take(self, answer: dict[str, str]) -> None:
        lost = {
            job: state
            for job, state in (self._states or {}).items()
            if job not in answer and is_active(state)
        }
        if lost and self._is_believed():
            lost = {}
        if not lost:
            self._lost_since = None
            if answer and not self._booted:
                self._booted = _boot_time_or_nothing()
        self._states = answer | lost

    def _is_believed(self) -> bool:
        """Whether jobs that are no longer named are gone: the same controller knew them."""
        if self._lost_since is None:
            booted = _boot_time_or_nothing()
            if booted and booted == self._booted:
                return True
            self._lost_since = time.monotonic()
        if time.monotonic() - self._lost_since < self._patience:
            return False
        self._booted = ""
        return True


def _boot_time_or_nothing() -> str:
    try:
        return boot_time()
    except MachineryError:
        return ""


def _ask(*argv: str) -> str:
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, timeout=ANSWER_SECONDS, start_new_session=True
        )
    except FileNotFoundError as error:
        raise MachineryError(
            f"{argv[0]} is not installed here; hydra/launcher=slurm needs Slurm's commands"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise MachineryError(f"Slurm is silent: {argv[0]} took over {error.timeout:g} s") from error
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise MachineryError(f"Slurm does not answer {argv[0]}: {said}")
    return done.stdout
