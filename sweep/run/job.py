"""One case, in the process that Hydra's launcher started for it (or ours, in the foreground).

It always leaves facts.json, unless it is killed outright, and never raises.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep import clock, processes, trainers
from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.case.identity import identity_of
from sweep.case.labels import Case
from sweep.errors import Interrupted
from sweep.facts import Facts, LaunchFacts, Metrics
from sweep.logs import breaks
from sweep.logs import compiler_log as log
from sweep.run import consult, exported, launch, origin, repeats, warm
from sweep.schema import Settings
from sweep.slurm import heartbeat, nodes
from sweep.trainers.base import (
    LAUNCHES,
    Command,
    Launch,
    Trainer,
    all_launches,
    exports_at,
    in_folders,
)
from sweep.trainers.tree import moved

REPLAY = "replay"  # the launch that settles a tie
DRIVER = "SWEEP_DRIVER"  # environment: processes.this_process() of the driving process


def run_job(settings: Settings) -> None:
    """What submitit calls: run the case as it was planned, in the folder made for it.

    Not through Hydra, which would compose the case once more, at half of a job's cost.
    """
    case_dir = Path(settings.outputs) / str(settings.sweep_id) / str(settings.case_id)
    if (case_dir / LAUNCHES).exists() and settings.replay.case_id is None:
        print("this case was already started; it is not run twice")
        return
    file = case_file.read(case_dir)
    if file.env:  # a server of the sweep was started without it
        os.environ.pop(warm.SERVERS, None)
        os.environ.update(file.env)
    with _stoppable():
        if settings.replay.case_id is None:
            run_case(settings, file.case, case_dir)
        else:
            replay_case(settings, case_dir)


def run_case(settings: Settings, case: Case, case_dir: Path, stream: bool = False) -> Facts:
    """Build the checkpoint, start the trainer, write facts.json."""
    facts = Facts(
        sweep_id=str(settings.sweep_id),
        case=case,
        started=clock.now(),
        seconds=0.0,
        environment=origin.provenance_of(case.device, _config_dir(case_dir)),
        identity=identity_of(settings),
        asked=facts_file.asked_of(settings),
        attempts=settings.attempts,
    )
    try:
        CaseLaunches(moved(settings), case_dir, stream).run_all(facts)
    except (KeyboardInterrupt, Interrupted) as error:
        facts.interrupted = True
        facts.error = f"interrupted: {error or 'Ctrl-C'}"
        raise
    except Exception as error:  # noqa: BLE001  # one case's failure is its own result
        facts.error = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):  # it may be the disk that failed
            (case_dir / "error.log").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        facts.seconds = clock.now() - facts.started
        facts_file.save(facts, case_dir)
    return facts


def replay_case(settings: Settings, case_dir: Path) -> None:
    """Add one launch to a case that ran, which replays the choices of another: a tie is settled."""
    facts = facts_file.load(case_dir)
    if facts is None:
        return
    try:
        CaseLaunches(moved(settings), case_dir).replay(facts)
    except Exception as error:  # noqa: BLE001  # as where the case ran
        facts.error = f"{REPLAY}: {type(error).__name__}: {error}"
    facts_file.save(facts, case_dir)


@dataclass(frozen=True)
class CaseLaunches:
    """Starts the launches of a case, one after the other."""

    settings: Settings
    case_dir: Path
    stream: bool = False  # the trainer's log on our stdout

    @property
    def trainer(self) -> Trainer:
        """The case's adapter."""
        return trainers.of(self.settings)

    def run_all(self, facts: Facts) -> None:
        """Every launch into `facts`, up to the first that fails."""
        facts.environment |= origin.commit(self.settings)
        model = None
        if self.trainer.needs_checkpoint(self.settings):
            model = checkpoint_of(self.settings)
            facts.vocab_size = _vocab_size(model)
            origin.note_checkpoint(facts, model)
        with self.server() as server:
            launches = all_launches(self.trainer, self.settings)
            for launch, directory in in_folders(launches, self.case_dir.resolve()):
                if launch.repeats and not repeats.are_needed(facts.launches):
                    continue
                directory.mkdir(parents=True)
                command = self.trainer.command(
                    self.settings, launch.repeats or launch, directory, model
                )
                done = self.run(launch, command, directory, server)
                facts.launches.append(done)
                origin.note_launch(facts, directory)
                if not done.ended_well:
                    break
            if model is not None and facts.launches:
                facts.oracle = self._consult(model, facts.launches[0], server)
                facts.export = self._look_at_export(model, facts.launches[0], server)

    def replay(self, facts: Facts) -> None:
        """The whole run once more, into `facts`."""
        settings = self.settings
        model = checkpoint_of(settings) if self.trainer.needs_checkpoint(settings) else None
        launches = self.case_dir.resolve() / LAUNCHES
        directory = launches / f"{len(list(launches.iterdir())) + 1}_{REPLAY}"
        directory.mkdir()
        whole = self.trainer.launches(settings)[0]
        command = self.trainer.command(settings, whole, directory, model)
        with self.server() as server:
            done = self.run(replace(whole, name=REPLAY), command, directory, server)
        done.replays = str(settings.replay.case_id)
        facts.launches.append(done)
        facts.seconds += done.seconds

    def _consult(
        self, model: Path, first: LaunchFacts, server: str | None
    ) -> facts_file.OracleFacts | None:
        """What the oracle says of the first launch; None where the adapter does not define it."""
        settings = self.settings
        definitions = self.trainer.oracle(settings)
        if definitions is None:
            return None
        if settings.attention_dropout:
            return facts_file.OracleFacts(reason="what dropout drops is drawn by each rank")
        case_dir, run = self.case_dir.resolve(), self.runs_oracle(server)
        return consult.consult(model, definitions, settings.device.value, case_dir, first, run)

    def _look_at_export(
        self, model: Path, first: LaunchFacts, server: str | None
    ) -> facts_file.ExportFacts | None:
        """What the oracle says of what the first launch exported; None where nobody asks."""
        settings, case_dir = self.settings, self.case_dir.resolve()
        if exports_at(settings, self.trainer.launches(settings)[0]) is None:
            return None
        if settings.attention_dropout:
            return facts_file.ExportFacts(reason="what dropout drops is drawn by each rank")
        folder = self.trainer.export(settings, case_dir / consult.first_folder(first))
        return exported.look(folder, model, {"dtype": settings.dtype.value}, settings.device.value,
                             case_dir, first, self.runs_oracle(server))  # fmt: skip

    def runs_oracle(self, server: str | None) -> consult.Run:
        """How a process of the oracle is started; cold where the server refuses it."""
        settings = self.settings
        if settings.trainer.tree is not None:  # whose server has the oracle of that tree
            server = None

        def run(start: Launch, command: Command, directory: Path) -> LaunchFacts:
            env = launch.launch_variables(settings.device.value, settings.gpus)
            watch = launch.Watch(Metrics, settings.launch.timeout_seconds, orphaned=_orphaned_by())
            done = launch.run(start, command, directory, env, watch, server)
            return launch.run(start, command, directory, env, watch) if done.refused else done

        return run

    def run(
        self, start: Launch, command: Command, directory: Path, server: str | None
    ) -> LaunchFacts:
        """One launch; cold where the server refuses it, and nobody insisted on warm."""
        settings, watch = self.settings, self._watch(directory)
        env = launch.launch_variables(settings.device.value, settings.gpus) | command.env
        if start.first_step == 1:
            env[consult.VARIABLE] = str(directory / consult.TAPS)
        if settings.feature.compile:
            env = log.log_variables(env)
        done = launch.run(start, Command(command.argv), directory, env, watch, server)
        if done.refused and settings.launch.mode is None:
            reason = done.refused
            done = launch.run(start, Command(command.argv), directory, env, watch)
            done.refused = reason
        if settings.feature.compile:
            done.compiler = breaks.read(directory)
        return done

    def _watch(self, directory: Path) -> launch.Watch:
        return launch.Watch(
            metrics=lambda: self.trainer.metrics(self.settings, directory),
            limit_seconds=self.settings.launch.timeout_seconds,
            stream=self.stream,
            orphaned=_orphaned_by(),
            elsewhere=nodes.Step() if self.settings.layout.nodes > 1 else None,
        )

    def server(self) -> AbstractContextManager[str | None]:
        """The address of what forks the case's launches; None where they start cold."""
        settings = self.settings
        program = warm.program_of(settings)
        if program is None:
            return contextlib.nullcontext()
        env = launch.launch_variables(settings.device.value, settings.gpus) | settings.trainer.env
        # A server of the sweep was started without the case's own environment, and much of that is
        # read when a library is imported.
        return warm.serving(program, env, self.case_dir / warm.LOG, shared=not settings.trainer.env)


def _config_dir(case_dir: Path) -> str | None:
    return case_file.read(case_dir).config_dir if case_file.exists(case_dir) else None


def checkpoint_of(settings: Settings) -> Path:
    """The case's seeded checkpoint, built if it is not there yet."""
    import tiny_models

    return Path(
        tiny_models.ensure(settings.arch.name, scale=settings.scale.name, seed=settings.seed)
    )


def _vocab_size(model: Path) -> int | None:
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    size = config.get("vocab_size")
    return int(size) if size is not None else None


def _orphaned_by() -> Callable[[], bool]:
    listener = heartbeat.Listener()
    driver = os.environ.get(DRIVER)
    if driver is None:
        return listener.is_stopped
    return lambda: not processes.is_there(driver)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """A signal ends the case in order.

    submitit would ignore SIGTERM, and answer SIGUSR2 by having Slurm run the job again.
    """

    def stop(number: int, _frame: Any) -> None:
        raise Interrupted(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGUSR2)}
    try:
        yield
    except Interrupted:
        pass  # the facts say so
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
