"""Finding and ending the processes of a case, wherever they went.

torchrun puts each rank into a session of its own, so killing a process group is not enough: every
process that a launch starts inherits a marker in its environment, and is found by it. What has
cleaned its environment is known to the launch's supervisor, whose descendant it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import psutil

MARKER = "SWEEP_LAUNCH"  # environment: one launch of a trainer
JOB_MARKER = "SWEEP_JOB"  # environment: the job that launches it, and all below
SUPERVISOR_SECONDS = 12.0  # for a supervisor (sweep/run/supervisor.py) to have killed everything


class MarkedJob:
    """A job on this machine: all processes that inherited its marker."""

    def __init__(self, marker: str) -> None:
        self._marker = marker

    def ask_to_stop(self) -> None:
        """SIGTERM to its first process, which ends the others in order."""
        ask_to_stop(self._marker)

    def is_over(self) -> bool:
        """Whether none of its processes is left."""
        return not marked(self._marker)

    def clear(self) -> None:
        """Kill what is left of it, and wait for those who kill what carries no marker."""
        end_all(self._marker)
        deadline = time.monotonic() + SUPERVISOR_SECONDS
        while _supervised(self._marker) and time.monotonic() < deadline:
            time.sleep(0.05)


def marked(marker: str) -> list[psutil.Process]:
    """Every live process but ours that inherited `marker`, the oldest first."""
    # Read /proc ourselves: psutil looks up much of every process, which adds up over many cases.
    needles = tuple(f"\0{key}={marker}\0".encode() for key in (MARKER, JOB_MARKER))
    processes = []
    for directory in Path("/proc").glob("[0-9]*"):
        if int(directory.name) != os.getpid() and _carries(directory, needles):
            with contextlib.suppress(psutil.Error):
                processes.append(psutil.Process(int(directory.name)))
    return sorted(filter(_runs, processes), key=_age_order)


def _supervised(marker: str) -> bool:
    """Whether a supervisor of such launches is there: it has the marker as an argument alone."""
    needle = f"\0{JOB_MARKER}={marker}\0".encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if needle in path.read_bytes():
                return True
    return False


def dump_stacks(marker: str, launcher: int, wait: float = 3.0, asked: bool = False) -> None:
    """Make every Python process of a launch write its threads' stacks to its log, and end.

    SIGABRT: with PYTHONFAULTHANDLER set, the interpreter answers it with the stacks of all threads,
    even when a thread hangs in C code, and no trainer has to register anything for that. The
    launcher comes last: torchrun still copies what its ranks wrote. Ranks that were `asked` already
    are waited for alone: a second SIGABRT ends a process amid its stacks.
    """
    processes = marked(marker)
    ranks = [process for process in processes if process.pid != launcher]
    if not asked:
        _abort(ranks)
    _wait_for(ranks, wait)
    last = [process for process in processes if process.pid == launcher]
    _abort(last)
    _wait_for(last, wait)


def _abort(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGABRT)


def end_all(marker: str, wait: float = 10.0) -> list[str]:
    """Kill what carries `marker` until nothing does; returns the commands of what was there."""
    killed: dict[int, str] = {}
    deadline = time.monotonic() + wait
    while processes := marked(marker):
        killed.update((process.pid, _command(process)) for process in processes)
        _kill(processes)
        _wait_for(processes, 1.0)
        if time.monotonic() > deadline:
            break
    return list(killed.values())


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200]
    except psutil.Error:
        return f"process {process.pid}"


def ask_to_stop(marker: str) -> None:
    """SIGTERM to the oldest process that carries `marker`, which passes it on."""
    for process in marked(marker):
        with contextlib.suppress(psutil.Error):
            process.terminate()
            return


def is_alive(pid: int, created: float) -> bool:
    """Whether that process, and not a later one with its number, is there and no zombie."""
    try:
        process = psutil.Process(pid)
        return _runs(process) and abs(process.create_time() - created) < 1.0
    except psutil.Error:
        return False


def created(pid: int) -> float:
    """When the process was started, in seconds since the epoch."""
    return float(psutil.Process(pid).create_time())


def this_process() -> str:
    """Identifies this process even if its PID is reused: `pid:ticks since boot:epoch seconds`.

    Compare the ticks: epoch times shift when the clock is set.
    """
    return f"{os.getpid()}:{_born(os.getpid())}:{created(os.getpid())}"


def is_there(name: str) -> bool:
    """Whether the process that `this_process` named so is there and no zombie."""
    pid, *born, epoch = name.split(":")
    if not born:  # as sweeps were recorded before
        return is_alive(int(pid), float(epoch))
    return _born(int(pid)) == int(born[0])


def _born(pid: int) -> int | None:
    """When the process was started, in clock ticks since boot; None if it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # behind the name, in which may be anything
    return None if fields[0] in "ZX" else int(fields[19])


def _wait_for(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Until all are gone or zombies. Not psutil.wait_procs: that takes a child's exit code."""
    deadline = time.monotonic() + seconds
    while any(map(_runs, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _carries(directory: Path, needles: tuple[bytes, ...]) -> bool:
    try:
        environ = b"\0" + (directory / "environ").read_bytes()
    except OSError:  # gone, or not ours
        return False
    return any(needle in environ for needle in needles)


def _age_order(process: psutil.Process) -> float:
    try:
        return float(process.create_time())
    except psutil.Error:
        return float("inf")
