"""One start of a trainer: its processes, its logs, its time limit, and nothing left behind."""

from __future__ import annotations

import codecs
import json
import os
import resource
import subprocess
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
from sweep.trainers.base import LOG, PROCESS, Command, Launch

POLL_SECONDS = 0.1
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
    ours = {key: value for key, value in os.environ.items()
            if key not in _OF_RANKS and not key.startswith(("TORCHELASTIC_", "PET_"))}  # fmt: skip
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
        facts.stopped = processes.end_all(marker)
        facts.seconds = clock.now() - facts.started
        facts.metrics = watch.metrics()
    if facts.exit_code != 0 or facts.timed_out:
        _explain(facts, directory)
    return facts


def end_leftovers(directory: Path) -> int:
    """End what a launch in `directory` left running, when its own supervisor was killed."""
    path = directory / PROCESS
    if not path.is_file():
        return 0
    return processes.end_all(json.loads(path.read_text(encoding="utf-8"))["marker"])


def began(directory: Path) -> float:
    """When the launch in `directory` was started, in seconds since the epoch."""
    path = directory / PROCESS  # written just before, and never again
    return (path if path.is_file() else directory).stat().st_mtime


class _Start(NamedTuple):
    argv: list[str]
    env: dict[str, str]
    log: Path
    server: str | None

    def process(self) -> subprocess.Popen[bytes] | warm.Forked:
        if self.server is not None:
            return warm.Forked(self.server, self.argv, self.env, self.log)
        with self.log.open("ab") as log:  # it may say why this was not forked
            return subprocess.Popen(
                processes.dependent(self.argv), stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, env=self.env, start_new_session=True,
            )  # fmt: skip


def _supervise(facts: LaunchFacts, directory: Path, start: _Start, watch: Watch) -> None:
    write_json(directory / PROCESS, {"marker": start.env[processes.MARKER]})
    used_before = _cpu_seconds()
    process = start.process()
    with _copying(directory / LOG, watch.stream) as copy:
        try:
            _wait(process, facts, start.env[processes.MARKER], watch, copy)
        finally:
            if process.poll() is None:
                process.kill()
            facts.exit_code = process.wait()
            if isinstance(process, warm.Forked):
                facts.cpu_seconds, facts.refused = process.cpu_seconds, process.refused
            else:
                facts.cpu_seconds = _cpu_seconds() - used_before
            _note_first_step(facts, watch)
            copy()


def _wait(
    process: subprocess.Popen[bytes] | warm.Forked, facts: LaunchFacts, marker: str, watch: Watch,
    copy: Callable[[], None],
) -> None:  # fmt: skip
    """Until it ends, or for as long as it may take."""
    deadline = time.monotonic() + watch.limit_seconds
    while process.poll() is None:
        copy()
        _note_first_step(facts, watch)
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
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # a sign may come in parts
    with log.open("rb") as file:

        def copy() -> None:
            if text := decode(file.read()):
                sys.stdout.write(text)
                sys.stdout.flush()

        yield copy


def _note_first_step(facts: LaunchFacts, watch: Watch) -> None:
    if facts.first_step_seconds is None and watch.metrics().steps:
        facts.first_step_seconds = clock.now() - facts.started


def _explain(facts: LaunchFacts, directory: Path) -> None:
    facts.log_tail = tail(directory / LOG)
    ranks = directory / "ranks"
    if facts.timed_out:
        facts.rank_tail = root_cause.last_words(ranks)
        return
    cause = root_cause.find(directory / LOG, ranks)
    facts.failed_rank, facts.failure = cause.rank, cause.failure
    facts.rank_tail = cause.rank_tail
