"""Ends a sweep's runs in MLflow where its own process was killed and cannot.

Beside a sweep a program of a few lines waits for the end of a pipe that nobody else holds. A word
in it says that all is well; without one the sweep was killed, and only then is anything imported.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweep.folder import is_dead, read_plan, this_driver
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


@contextmanager
def guarded(folder: Path) -> Iterator[None]:
    """While this process drives the sweep in `folder`: its runs end if it is killed meanwhile."""
    try:
        waits = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _WAITS, str(folder.resolve()), this_driver()],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
    except OSError:  # no sweep fails for want of it
        yield
        return
    assert waits.stdin is not None
    try:
        yield
    except BaseException:  # so this process ends, and leaves what it was writing
        waits.stdin.close()
        raise
    with contextlib.suppress(BrokenPipeError):
        waits.communicate(b"ended")


def main(folder: Path, driver: str) -> None:
    """End what that process left RUNNING of the sweep in `folder`, once it is gone."""
    plan = read_plan(folder)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_dead(driver) and time.monotonic() < deadline:
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
