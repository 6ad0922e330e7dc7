"""The driving process of a sweep: follows the jobs, and hands on what each case left.

It is the only writer to MLflow; jobs leave files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from sweep import commands, report, trainers
from sweep import facts as facts_file
from sweep.case.folder import claim, leave, note_spared, read_plan, write_plan
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import Interrupted, of_system, told
from sweep.facts import DIED, Facts, JobEnd
from sweep.files import ConfDirs
from sweep.judge import ready
from sweep.plan import spelled, stale
from sweep.plan.earlier import Earlier
from sweep.report.detection import Conclusion
from sweep.run import launch, origin, salvage, warm
from sweep.schema import Settings
from sweep.session import retries, ties
from sweep.session.alike import Alike, EnoughError
from sweep.session.aside import set_aside
from sweep.session.notify import Notice
from sweep.session.stopping import Stop, watched
from sweep.session.sweep_results import SweepResults
from sweep.store import End, Location
from sweep.store.guard import guarded
from sweep.trainers.base import all_launches, in_folders

GRACE_SECONDS = 20.0  # for an interrupted job to end its trainer and write its facts
INTERRUPTED = 130


class Started(Protocol):
    """A job as its launcher knows it, so that the session can end it."""

    def ask_to_stop(self) -> None:
        """Let it end in order; it may end at any time, or be gone."""
        ...

    def is_over(self) -> bool:
        """Whether nothing of it runs or waits any more."""
        ...

    def clear(self) -> None:
        """End what it left, at once."""
        ...


class Session:
    """One sweep, from its plan to its exit code."""

    def __init__(
        self, folder: Path, planned: Sequence[Planned], runnable: Sequence[Planned],
        machine: Machine, results: SweepResults, experiment: str, detach: bool,
        conclusion: Conclusion | None,
    ) -> None:  # fmt: skip
        self.folder, self.planned, self.machine = folder, planned, machine
        self.runnable = runnable  # the cases that get a job
        self.limits = planned[0].settings.launch
        self.detach = detach  # the jobs go on without us once they are submitted
        self._experiment = experiment
        self._conclusion = conclusion  # what the suite makes of the results, and its exit code
        self._results = results
        self._jobs: dict[int, Started] = {}  # were started, or wait for it, and have not ended
        self._left: list[str] = []  # cases that go on without us
        self._settling = False  # ties, by one launch more of cases that have ended
        self._stopping = False  # the jobs: what they leave from now on is no result
        self._ending = ExitStack()  # what ends after the last job
        self._alike = Alike(self.limits.stop_after_alike)
        self._spared = ""  # why the rest of the cases did not run
        self._problem: str | None = None  # with the machinery

    @classmethod
    def begin(
        cls, planned: Sequence[Planned], machine: Machine, experiment: str = "adhoc",
        earlier: Earlier | None = None, live: bool = True, detach: bool = False,
        conclusion: Conclusion | None = None, argv: Sequence[str] = (),
    ) -> Session:  # fmt: skip
        """Claim the sweep's folder and write its plan; of `earlier` take up the folder.

        `argv` is the command line, kept in the plan. Raises RequestError before anything is made.
        """
        config_dir = planned[0].config_dir
        conf = ConfDirs.having(config_dir)
        ready(conf)
        for line in stale.unmatched(planned, conf):
            print(line, file=sys.stderr)
        settings = planned[0].settings
        outputs = Path(settings.outputs)
        location = Location.at(outputs)
        every = planned if earlier is None else earlier.with_the_rest(planned)
        todo = [case for case in planned if earlier is None or earlier.is_to_run(case.case.id)]
        folder = claim(outputs) if earlier is None else earlier.folder
        if earlier is not None and not earlier.failed_only:
            todo = [retries.carried(folder, case) for case in todo]
        if earlier is not None and earlier.reruns:
            for case in todo:
                set_aside(folder, case)
        about = origin.provenance_of(settings.device.value, config_dir)
        write_plan(folder, every, experiment, about | origin.commit(settings), argv)
        runnable = [case for case in todo if case.unavailable is None]
        results = SweepResults(every, folder, location, conf, live)
        return cls(folder, every, runnable, machine, results, experiment, detach, conclusion)

    def locate(self, wanted: bool) -> None:
        """Say whether failed comparisons are looked into at the end (sweep/locate/)."""
        self._results.locates = wanted

    def notify(self, notice: Notice | None) -> None:
        """Whom to tell at the end."""
        self._results.notice = notice

    def execute(self, run: Callable[[], object], can_settle: bool = False) -> int:
        """Run the cases by `run`, report, and return the exit code.

        `can_settle`: `run` can be called once more, for the cases in which scores tied.
        """
        with watched() as stop, guarded(self.folder) as guard:
            interrupted = False
            with self._results.progress, self._ending:
                try:
                    self._run(run, can_settle)
                except (KeyboardInterrupt, Interrupted):
                    interrupted = True
                finally:
                    self._end_running(stop)
            code = self._close(interrupted)
            guard.ended = self._problem is None
            return code

    def _run(self, run: Callable[[], object], can_settle: bool) -> None:
        """Whatever else than a signal ends it, results are reported after it."""
        try:
            self._results.note_unavailable()
            self._results.note_earlier([case.case.id for case in self.runnable])
            if self.runnable:
                run()
            self._alike = Alike(None)  # what follows runs cases that were counted
            if not self._left:
                self._settle(run, can_settle)
                self._retry(run, can_settle)
        except EnoughError as enough:
            self._spared = str(enough)
            note_spared(self.folder, self._spared)
        except Exception as error:  # noqa: BLE001  # reported, and the sweep still ends with a report
            self._problem, _ = told(error)

    def _settle(self, run: Callable[[], object], can_settle: bool) -> None:
        """Ties, by one launch more of cases that have ended."""
        self.runnable = ties.to_settle(self.planned, self._results.context) if can_settle else []
        self._settling = True
        if self.runnable:
            run()
        self._settling = False

    def _retry(self, run: Callable[[], object], can_settle: bool) -> None:
        """Run what failed once more, as often as `launch.retries` says."""
        while again := retries.to_run(self.planned, self._results.judged_together()):
            for case in again:
                self._results.set_aside(case)
            self.runnable = again
            run()
            self._settle(run, can_settle)

    # What the launcher asks and tells.

    def overrides(self) -> list[tuple[str, ...]]:
        """What composes each job's case, as a launcher of Hydra is asked for it."""
        return [case.overrides for case in self.runnable]

    def settings_of(self, index: int, gpus: Sequence[str] = ()) -> Settings:
        """What the job runs, on these GPUs if its launcher reserved some."""
        settings = self.runnable[index].settings
        reserved = ",".join(gpus) or settings.gpus
        return replace(settings, sweep_id=self.folder.name, gpus=reserved)

    def gpus_of(self, index: int) -> int:
        """How many GPUs of this machine the job needs."""
        return self.runnable[index].settings.gpus_per_node

    def has_facts(self, index: int) -> bool:
        """Whether the job left what a case leaves at its end."""
        return _left_by_job(self.folder / self.runnable[index].case.id) is not None

    def submitted(self, index: int, job: Started) -> None:
        """The job will run, and is ours to end."""
        self._jobs[index] = job

    def start_servers(self) -> dict[str, str]:
        """Start what forks the launches of local jobs; returns the environment to find them by."""
        shared = [
            case.settings
            for case in self.runnable
            if not (case.settings.trainer.env or case.settings.trainer.tree or case.env)
        ]
        programs = [program for case in shared if (program := warm.program_of(case))]
        env = launch.launch_variables(self.machine.device, None)
        servers = warm.Servers(programs, env, self.folder / warm.LOG)
        self._ending.callback(servers.stop)
        return servers.addresses()

    def started(self, index: int) -> None:
        """The job runs."""
        self._results.started(self.runnable[index].case.id)

    def ended(self, index: int, log: str, end: JobEnd = DIED) -> None:
        """The job has ended; `log` is where it complained, `end` what its launcher knows."""
        self._jobs.pop(index).clear()
        planned = self.runnable[index]
        case_dir = self.folder / planned.case.id
        facts = _left_by_job(case_dir)
        if not self._stopping and _is_unexplained(facts):
            facts = salvage.facts_of(planned, self.folder, facts, Path(log), end)
            facts_file.save(facts, case_dir)
        self._results.conclude(planned, facts, again=self._settling)
        result = self._results.of(planned.case.id)
        if result is not None and not self._stopping:
            self._alike.count(result)

    def leave(self) -> None:
        """Let the jobs that have not ended go on without us; sweep.collect asks for them later."""
        self._left = [self.runnable[index].case.id for index in self._jobs]
        self._jobs.clear()
        leave(self.folder)

    def tick(self) -> None:
        """Look at how far the running cases are."""
        for index in self._jobs:
            planned = self.runnable[index]
            with suppress(Exception):  # of its files: the case's end tells what is wrong with them
                self._results.progress.step(
                    planned.case.id, self._step_of(planned), planned.case.steps
                )
        self._results.progress.refresh()

    def _step_of(self, planned: Planned) -> int:
        trainer = trainers.of(planned.settings)
        launches = in_folders(
            all_launches(trainer, planned.settings), self.folder / planned.case.id
        )
        begun = [directory for _, directory in launches if directory.is_dir()]
        if not begun:
            return 0
        return trainer.last_step(planned.settings, begun[-1])

    def _end_running(self, stop: Stop) -> None:
        self._stopping = True
        stop.close()
        if running := sum(not job.is_over() for job in self._jobs.values()):
            print(
                f"ending {running} cases that run, in {GRACE_SECONDS:.0f} s at most;"
                " once more, to kill them",
                file=sys.stderr,
            )
        for job in self._jobs.values():
            job.ask_to_stop()
        deadline = time.monotonic() + GRACE_SECONDS
        while not all(job.is_over() for job in self._jobs.values()):
            if stop.hurried or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        for index in list(self._jobs):
            try:
                self.ended(index, "")
            except OSError as error:
                self._problem = self._problem or of_system(error)

    def _close(self, interrupted: bool) -> int:
        done = len(self._results.results) + len(self._left)
        end = End(interrupted or done < len(self.planned), unfinished=bool(self._left))
        results, problem = self._results.close(end)
        self._problem = problem = self._problem or problem
        if results or problem or not self._left:
            report.show(self.folder, results, problem)
        self._say_what_is_missing(len(results))
        if interrupted:
            return INTERRUPTED
        if (
            self._left
            and problem is None
            and all(result.judgement.verdict.good for result in results)
        ):
            return 0 if self.detach else 3  # neither green nor red yet
        conclude = self._conclusion if problem is None else None
        code = conclude(self.folder, results) if conclude else report.exit_code(results, problem)
        return 3 if code == 0 and len(results) < len(self.planned) else code

    def _say_what_is_missing(self, results: int) -> None:
        name, outputs = self.folder.name, str(self.folder.parent)
        if self._left:
            collect = commands.spelled("sweep.collect", [f"sweep={name}", f"outputs={outputs}"])
            print(
                f"{len(self._left)} of {len(self.planned)} cases wait or run in Slurm;"
                f" to judge what has ended: {collect} (wait=true: when all have)",
                file=sys.stderr,
            )
        if missing := len(self.planned) - results - len(self._left):
            more = ["launch.stop_after_alike=null"] if self._spared else []
            suite = [f"suite={self._experiment}"] if self._conclusion else []  # which draws it
            words = [*suite, f"resume_sweep={name}", f"outputs={spelled(outputs)}", *more]
            words += commands.of_launcher(read_plan(self.folder)["argv"])
            again = commands.spelled("sweep", ["-m", *words], self.planned[0].config_dir)
            said = f"were spared: {self._spared}" if self._spared else "have no result"
            print(
                f"{missing} of {len(self.planned)} cases {said}; to go on: {again}",
                file=sys.stderr,
            )


def _is_unexplained(facts: Facts | None) -> bool:
    """Whether a job did not end by itself; one that lost sight of its sweep just has no result."""
    if facts is None or not facts.interrupted:
        return facts is None
    return launch.ORPHANED not in str(facts.error)


def _left_by_job(case_dir: Path) -> Facts | None:
    """The facts; None as well where they cannot be read: what else it left is looked at then."""
    return facts_file.load_or_why(case_dir)[0]
