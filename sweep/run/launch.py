"""One start of a trainer: its processes, its logs, its time limit, and nothing left behind."""

from __future__ import annotations

import codecs
import json
import os
import resource
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from sweep import clock, processes
from sweep.errors import Interrupted
from sweep.facts import LaunchFacts, Metrics
from sweep.files import tail, write_json
from sweep.logs import root_cause
from sweep.run import compile_cache as cache
from sweep.run import warm
from sweep.run.supervised import Supervised
from sweep.trainers.base import CHOICES, LOG, PROCESS, Command, Launch

POLL_SECONDS = 0.1
LOOK_SHARE = 20  # a look at the metrics is followed by so many times its length without one
ORPHANED = "the sweep is gone"

_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "PYTHONFAULTHANDLER": "1",  # see processes.dump_stacks
}
# torchrun's; a job or a shell in which a sweep is started may have them.
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
             "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE",
             "MASTER_ADDR", "MASTER_PORT")  # fmt: skip


class Elsewhere(Protocol):
    """Processes of a launch on other machines, which no signal of ours reaches."""

    def dump_stacks(self) -> None:
        """As processes.dump_stacks, of those on this machine too."""
        ...

    def end(self) -> None:
        """As processes.end_all."""
        ...


@dataclass(frozen=True)
class Watch:
    """What to look at while the trainer runs."""

    metrics: Callable[[], Metrics]
    limit_seconds: float
    stream: bool = False  # copy its log to our stdout
    orphaned: Callable[[], bool] = lambda: False  # whether whoever wants the result is gone
    elsewhere: Elsewhere | None = None


def launch_variables(device: str, gpus: str | None) -> dict[str, str]:
    """The environment of a trainer's processes: ours, offline, with the GPUs of this case.

    Without what a torchrun around us says of ranks: a trainer would wait for that many.
    """
    ours = {
        key: value
        for key, value in os.environ.items()
        if key not in _OF_RANKS and not key.startswith(("TORCHELASTIC_", "PET_"))
    }
    env = {**ours, **_QUIET, **cache.cache_variables()}
    env.setdefault("OMP_NUM_THREADS", "1")  # as torchrun has it where ranks are several
    if device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    elif gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = gpus
    return env


def run(
    launch: Launch,
    command: Command,
    directory: Path,
    env: dict[str, str],
    watch: Watch,
    server: str | None = None,
) -> LaunchFacts:
    """Start `command`, wait for its end or the limit, and return what happened.

    With the address of a `server` (see sweep/run/warm.py), the server forks what torchrun would
    start. Every process of the launch is gone on return, also if waiting is interrupted.
    """
    facts = LaunchFacts(
        name=launch.name,
        repeats=launch.repeats.name if launch.repeats else "",
        directory=f"{directory.parent.name}/{directory.name}",
        argv=command.argv,
        first_step=launch.first_step,
        last_step=launch.last_step,
        limit_seconds=watch.limit_seconds,
        started=clock.now(),
        seconds=0.0,
        mode="cold" if server is None else "warm",
    )
    marker = uuid.uuid4().hex
    try:
        env = {**env, **command.env, processes.MARKER: marker}
        _supervise(facts, directory, _Start(command.argv, env, directory / LOG, server), watch)
    finally:
        if watch.elsewhere is not None:
            watch.elsewhere.end()
        facts.stopped_commands += processes.end_all(marker)
        facts.stopped = len(facts.stopped_commands)
        facts.seconds = clock.now() - facts.started
        facts.metrics = watch.metrics()
        facts.keeps_choices = (directory / CHOICES).is_dir()
    if not facts.ended_well:
        _explain(facts, directory)
    return facts


def end_leftovers(directory: Path) -> int:
    """End what a launch in `directory` left running, when its own supervisor was killed."""
    path = directory / PROCESS
    if not path.is_file():
        return 0
    return len(processes.end_all(json.loads(path.read_text(encoding="utf-8"))["marker"]))


def began(directory: Path) -> float:
    """When the launch in `directory` was started, in seconds since the epoch."""
    path = directory / PROCESS  # written just before, and never again
    return (path if path.is_file() else directory).stat().st_mtime


class _Start(NamedTuple):
    argv: list[str]
    env: dict[str, str]
    log: Path
    server: str | None

    def process(self) -> Supervised | warm.Forked:
        if self.server is not None:
            return warm.Forked(self.server, self.argv, self.env, self.log)
        with self.log.open("ab") as log:  # it may say why this was not forked
            return Supervised(self.argv, self.env, log)


def _supervise(facts: LaunchFacts, directory: Path, start: _Start, watch: Watch) -> None:
    write_json(directory / PROCESS, {"marker": start.env[processes.MARKER]})
    used_before = _cpu_seconds()
    process, first_step = start.process(), _FirstStep(facts, watch)
    with _copying(directory / LOG, watch.stream) as copy:
        try:
            _wait(process, facts, first_step, start.env[processes.MARKER], watch, copy)
        finally:
            if process.poll() is None:
                process.kill()
            facts.exit_code = process.wait()
            process.end()
            facts.stopped_commands += process.stopped
            if isinstance(process, warm.Forked):
                facts.cpu_seconds, facts.refused = process.cpu_seconds, process.refused
            else:
                facts.cpu_seconds = _cpu_seconds() - used_before
            first_step.look(last=True)
            copy()


def _wait(
    process: Supervised | warm.Forked, facts: LaunchFacts, first_step: _FirstStep, marker: str,
    watch: Watch, copy: Callable[[], None],
) -> None:  # fmt: skip
    """Until it ends, or for as long as it may take."""
    deadline = time.monotonic() + watch.limit_seconds
    while process.poll() is None:
        copy()
        first_step.look()
        if time.monotonic() > deadline:
            facts.timed_out = True
            if watch.elsewhere is not None:
                watch.elsewhere.dump_stacks()
            asked = watch.elsewhere is not None  # on this machine too
            processes.dump_stacks(marker, process.pid or 0, asked=asked)
            return
        if watch.orphaned():
            raise Interrupted(ORPHANED)
        time.sleep(POLL_SECONDS)


def _cpu_seconds() -> float:
    """Of the children that we waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _copying(log: Path, wanted: bool) -> Iterator[Callable[[], None]]:
    """A function that copies to our stdout what was added to a log since its last call."""
    if not wanted:
        yield lambda: None
        return
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # reads may split a character
    with log.open("rb") as file:

        def copy() -> None:
            if text := decode(file.read()):
                sys.stdout.write(text)
                sys.stdout.flush()

        yield copy


class _FirstStep:
    """Looks for the first step, for a small part of the time at most: a log may be of any size."""

    def __init__(self, facts: LaunchFacts, watch: Watch) -> None:
        self._facts, self._watch, self._next = facts, watch, 0.0

    def look(self, last: bool = False) -> None:
        """Note when it was seen first; `last`: nobody looks again."""
        began = time.monotonic()
        if self._facts.first_step_seconds is not None or (began < self._next and not last):
            return
        if self._watch.metrics().steps:
            self._facts.first_step_seconds = clock.now() - self._facts.started
        self._next = time.monotonic() + LOOK_SHARE * (time.monotonic() - began)


def _explain(facts: LaunchFacts, directory: Path) -> None:
    facts.log_tail = tail(directory / LOG)
    ranks = directory / "ranks"
    if facts.timed_out:
        facts.rank_tail = root_cause.last_words(ranks)
        return
    cause = root_cause.find(directory / LOG, ranks)
    facts.failed_rank, facts.failure = cause.rank, cause.failure
    facts.rank_tail = cause.rank_tail
