"""Ends a sweep's runs in MLflow if its own process was killed and cannot.

A small program waits on a pipe that only the sweep's process holds. If the pipe ends without a
word, the sweep was killed: only then does the program import anything and end the runs.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sweep.case.folder import is_dead, read_plan, this_driver
from sweep.store.ending import end_dead_runs
from sweep.store.location import Location

PATIENCE_SECONDS = 30.0  # for a killed process to disappear
_WAITS = """\
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if not sys.stdin.buffer.read():
    os.execv(sys.executable, [sys.executable, "-P", "-m", "sweep.store.guard", *sys.argv[1:]])
"""


@dataclass
class Guard:
    """Whether the runs of the sweep that this process drives have ended."""

    ended: bool = False  # if not, the program ends them once this process is gone


@contextmanager
def guarded(folder: Path) -> Iterator[Guard]:
    """While this process drives the sweep in `folder`, its runs end even if it is killed."""
    guard = Guard()
    try:
        waits = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WAITS, str(folder.resolve()), this_driver()],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except OSError:  # a sweep does not fail without it
        yield guard
        return
    try:
        yield guard
    finally:
        if guard.ended:
            waits.communicate(b"ended")
        elif waits.stdin is not None:  # the store may be slow, and a run half written
            waits.stdin.close()


def main(folder: Path, driver: str) -> None:
    """Wait until `driver`, the process of the sweep in `folder`, is gone, and end its runs."""
    plan = read_plan(folder)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_dead(driver):
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)
    location = Location.at(folder.parent)
    if not location.exists:
        return
    with location.writing("end runs"):
        experiment = location.client.get_experiment_by_name(str(plan["experiment"]))
        if experiment is not None:
            end_dead_runs(location.client, experiment.experiment_id)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
