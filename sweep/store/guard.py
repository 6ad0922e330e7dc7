"""Ends a sweep's runs in MLflow where its own process was killed and cannot.

Beside a sweep a program of a few lines waits for the end of a pipe that nobody else holds. A word
in it says that all is well; without one the sweep was killed, and only then is anything imported.
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

PATIENCE_SECONDS = 30.0  # for a process that was killed to be gone
_WAITS = """\
import os, signal, sys
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if not sys.stdin.buffer.read():
    os.execv(sys.executable, [sys.executable, "-m", "sweep.store.guard", *sys.argv[1:]])
"""


@dataclass
class Guard:
    """What becomes of the runs of a sweep that this process drives."""

    ended: bool = False  # all of them are; else they will be once this process is gone


@contextmanager
def guarded(folder: Path) -> Iterator[Guard]:
    """While this process drives the sweep in `folder`: its runs end even if it cannot end them."""
    guard = Guard()
    try:
        waits = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WAITS, str(folder.resolve()), this_driver()],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except OSError:  # no sweep fails for want of it
        yield guard
        return
    try:
        yield guard
    finally:
        if guard.ended:
            waits.communicate(b"ended")
        elif waits.stdin is not None:  # with a store that is too slow a run may be half written
            waits.stdin.close()


def main(folder: Path, driver: str) -> None:
    """End what that process left RUNNING, which drove the sweep in `folder`, once it is gone."""
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
