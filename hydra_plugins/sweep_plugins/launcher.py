"""Launchers: the submitit plugin's own, with a bound on what runs at once."""

import os
import shlex
import signal
import sys
import uuid
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher

from hydra_plugins.hydra_submitit_launcher.submitit_launcher import LocalLauncher


class Observed(Launcher):
    """A launcher that tells `observer` (a session) when each job starts and ends.

    Results travel on disk, so that the death of a job costs nothing but its own result.
    """

    observer: Any = None
    detachable = False  # whether jobs can go on after the sweep's own process has ended

    @property
    def session(self) -> Any:
        """The observer; raises RequestError under a sweeper that has none."""
        if self.observer is None:
            from sweep.errors import RequestError

            raise RequestError("hydra/sweeper=cases alone runs cases: leave hydra/sweeper out")
        return self.observer

    @abstractmethod
    def expected(
        self, machine: Any, limits: Any, cases: Sequence[tuple[float, int]]
    ) -> tuple[float, int]:
        """How long cases of (seconds, GPUs) take, and how many run at a time."""


class SlotLauncher(Observed, LocalLauncher):
    """`submitit_local` that starts a job when a slot is free, and outlives the death of any."""

    def expected(
        self, machine: Any, limits: Any, cases: Sequence[tuple[float, int]]
    ) -> tuple[float, int]:
        """How long cases of (seconds, GPUs) take, and how many run at a time."""
        from sweep.run.slots import Pool, makespan

        return makespan(Pool(machine, limits), cases)

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run every job, in order as far as they fit; what became of each is on disk."""
        from sweep.processes import JOB_MARKER, MarkedJob, this_process
        from sweep.run.job import DRIVER
        from sweep.run.slots import Pool, SlotRunner

        session = self.session
        markers = [uuid.uuid4().hex for _ in job_overrides]

        def start(index: int, gpus: Sequence[str]) -> Any:
            known = {JOB_MARKER: markers[index], DRIVER: this_process()}
            session.submitted(index, MarkedJob(markers[index]))  # before a signal can come between
            with _deaf_to_the_terminal(), added_environment(known):
                job = self._submit(session.folder, session.settings_of(index, gpus))
            session.started(index)
            return job

        def ended(index: int, job: Any) -> None:
            session.ended(index, str(job.paths.stderr))

        runner = SlotRunner(Pool(session.machine, session.limits), start, ended, session.tick)
        with added_environment(session.start_servers()):
            runner.run([session.gpus_of(index) for index in range(len(job_overrides))])
        return [JobReturn() for _ in job_overrides]

    def _submit(self, folder: Path, settings: Any) -> Any:
        from sweep.errors import MachineryError
        from sweep.run.job import run_job

        try:
            return self._executor(folder, settings).submit(run_job, settings)
        except Exception as error:
            raise MachineryError(f"a job could not be started: {error}") from error

    def _executor(self, folder: Path, settings: Any) -> Any:
        # As BaseSubmititLauncher.launch builds it, which submits all jobs at once and raises.
        import submitit

        from sweep.run.slots import minutes

        params = {**self.params, "timeout_min": self.params["timeout_min"] or minutes(settings)}
        del params["submitit_folder"]  # composed before the sweep had a folder
        executor = submitit.AutoExecutor(
            folder=folder / ".submitit" / "%j",
            cluster=self._EXECUTOR,
            local_max_num_timeout=0,  # a case is never run again unasked
            local_python=job_python(),
        )
        executor.update_parameters(**params)
        return executor


def job_python() -> str:
    """The Python of a job; where it is started may have packages with the names of ours."""
    return f"{shlex.quote(sys.executable)} -P"


@contextmanager
def _deaf_to_the_terminal() -> Iterator[None]:
    """A process started here ignores what a terminal sends to all: we end it in order."""
    before = {
        number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@contextmanager
def added_environment(values: dict[str, str]) -> Iterator[None]:
    """What a job started here finds in its environment besides ours."""
    before = {key: os.environ.get(key) for key in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key)
            else:
                os.environ[key] = value
