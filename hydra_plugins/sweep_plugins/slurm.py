"""The launcher for Slurm: the submitit plugin's own, as job arrays that nothing ever requeues."""

import os
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn

from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf, SlurmQueueConf
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import SlurmLauncher
from hydra_plugins.sweep_plugins.launcher import Observed, added_environment, job_python


@dataclass
class ArrayConf(SlurmQueueConf):
    """submitit's settings for Slurm, and how the jobs are followed."""

    timeout_min: int = 0  # 0: launch.timeout_seconds of each launch, and ten minutes
    poll_seconds: float = 5.0  # between two looks at squeue; below Slurm's MinJobAge
    grace_seconds: float = 30.0  # for an ended job's files to appear on a shared file system
    patience_seconds: float = 300.0  # for Slurm to answer again, before the sweep gives up
    submit_seconds: float = 120.0  # for sbatch
    orphan_seconds: float = 180.0  # after which a job whose sweep was killed ends, if not detached


# What is not handed to submitit as it is: how jobs are followed, and what `request` decides.
OURS = {field.name for field in fields(ArrayConf)} - {
    field.name for field in fields(SlurmQueueConf)
}
OURS |= {"name", "submitit_folder", "max_num_timeout", "timeout_min", "additional_parameters"}


class ArrayLauncher(Observed, SlurmLauncher):
    """One job array for each combination of nodes, GPUs and CPUs that the cases need."""

    detachable = True

    def expected(
        self, machine: Any, limits: Any, cases: Sequence[tuple[float, int]]
    ) -> tuple[float, int]:
        """How long cases of (seconds, GPUs) take, and how many run, if the cluster has room."""
        from sweep.case.machine import Machine
        from sweep.run.slots import Pool, makespan

        pool = Pool(Machine(), replace(limits, slots=int(self.params["array_parallelism"])))
        return makespan(pool, [(seconds, 0) for seconds, _ in cases])

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Submit every job and follow them all, or with detach=true leave them to themselves."""
        from sweep.slurm import cluster
        from sweep.slurm.heartbeat import beating
        from sweep.slurm.jobs import Follower, Pace

        session = self.session
        name = f"{self.params['name']}-{session.folder.name}-{uuid.uuid4().hex[:6]}"
        queue = cluster.Queue([name], *self._seconds("poll", "patience"))
        try:
            if session.detach:
                self._submit_all(queue)
                session.leave()
            else:
                with beating(session.folder, self.params["orphan_seconds"]) as environment:
                    with added_environment(environment):
                        jobs = self._submit_all(queue)
                    Follower(session, jobs, queue, Pace(*self._seconds("poll", "grace"))).run()
        except BaseException:
            cluster.cancel(f"--name={name}")  # also what we do not know of
            raise
        return [JobReturn() for _ in job_overrides]  # nobody looks at it: facts are on disk

    def _seconds(self, *keys: str) -> list[float]:
        return [self.params[f"{key}_seconds"] for key in keys]

    def _submit_all(self, queue: Any) -> dict[int, Any]:
        from sweep.run import slots
        from sweep.slurm import arrays, cluster, jobs

        session, (name,) = self.observer, queue.names
        settings = [case.settings for case in session.runnable]
        limit = cluster.max_array_size()
        jobs.write_jobs(session.folder, {})
        jobs_by_index: dict[int, Any] = {}
        before: str | None = None  # the array to wait for, where all at once would be too many
        for array in arrays.arrays([arrays.shape_of(case) for case in settings], limit):
            minutes = max(slots.minutes(settings[index]) for index in array.indices)
            asked = {"name": name, **request(self.params, array.shape, minutes, before)}
            of_jobs = [session.settings_of(index) for index in array.indices]
            submitted = self._submit(asked, of_jobs)
            if len(settings) > self.params["array_parallelism"]:
                before = submitted[0].job_id.partition("_")[0]
            for index, job in zip(array.indices, submitted, strict=True):
                jobs_by_index[index] = jobs.SlurmJob(job.job_id, name, str(job.paths.stderr))
                session.submitted(index, jobs.Submitted(jobs_by_index[index], queue))
            cases = {session.runnable[index].case.id: job for index, job in jobs_by_index.items()}
            jobs.write_jobs(session.folder, cases)
        return jobs_by_index

    def _submit(self, asked: dict[str, Any], settings: Sequence[Any]) -> list[Any]:
        from sweep.errors import MachineryError
        from sweep.run.job import run_job

        try:
            with _alarm(self.params["submit_seconds"]), _without_our_own_job():
                jobs: list[Any] = self._executor(asked).map_array(run_job, settings)
                return jobs
        except Exception as error:  # submitit raises what sbatch said, or that it was killed
            late = error.__cause__ if isinstance(error.__cause__, TimeoutError) else error
            said = " ".join(str(late).split())
            raise MachineryError(f"the jobs could not be submitted: {said}") from error

    def _executor(self, asked: dict[str, Any]) -> Any:
        import submitit

        executor = submitit.AutoExecutor(
            folder=self._folder(), cluster=self._EXECUTOR, slurm_max_num_timeout=0,
            slurm_python=job_python(),
        )  # fmt: skip
        generic = set(BaseQueueConf.__dataclass_fields__)
        executor.update_parameters(
            **{key if key in generic else f"slurm_{key}": value for key, value in asked.items()}
        )
        return executor

    def _folder(self) -> Path:
        # Not a folder a job, as in the plugin: Slurm may open the log before submitit made it.
        folder: Path = self.observer.folder / ".submitit"
        return folder


def request(params: dict[str, Any], shape: Any, minutes: int, before: str | None) -> dict[str, Any]:
    """What submitit is asked for: what the cases need, and whatever else the launcher was told."""
    asked = {key: value for key, value in params.items() if key not in OURS and value is not None}
    asked |= {
        "nodes": shape.nodes,
        "tasks_per_node": 1,
        "timeout_min": params["timeout_min"] or minutes,
    }
    # A job's own process starts on its first node; it starts the others' (sweep.slurm.nodes).
    asked["srun_args"] = ["--nodes=1", "--ntasks=1"]
    if "cpus_per_gpu" not in asked:
        asked.setdefault("cpus_per_task", shape.cpus)
        asked["srun_args"].append(f"--cpus-per-task={asked['cpus_per_task']}")
    if shape.gpus_per_node and not {"gres", "gpus_per_task"} & set(asked):
        asked["gpus_per_node"] = shape.gpus_per_node
    asked["additional_parameters"] = _additional(params["additional_parameters"], before)
    return asked


def _additional(given: dict[str, Any], before: str | None) -> dict[str, Any]:
    """What submitit has no name for."""
    # submitit asks for SIGUSR2 near the time limit, of which a trainer dies; SIGCONT does nothing.
    values = {"no-requeue": True, "signal": "CONT@1", **given}
    if before is not None:
        after = [f"afterany:{before}", *([given["dependency"]] if "dependency" in given else [])]
        values["dependency"] = ",".join(after)
    return values


@contextmanager
def _without_our_own_job() -> Iterator[None]:
    """sbatch takes what the job in which we may run was given for a request of the new one."""
    ours = {
        key: value
        for key, value in os.environ.items()
        if key.startswith("SLURM_") and key != "SLURM_CONF"
    }
    for key in ours:
        del os.environ[key]
    try:
        yield
    finally:
        os.environ.update(ours)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """TimeoutError when it takes longer: submitit waits for sbatch without a limit."""

    def ring(_signal: int, _frame: Any) -> None:
        raise TimeoutError(f"sbatch took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


ConfigStore.instance().store(
    group="hydra/launcher", name="sweep_slurm", node=ArrayConf, provider="sweep"
)
