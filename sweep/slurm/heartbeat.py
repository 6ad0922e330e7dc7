"""A job on another machine notices that the sweep that wants its result is gone.

The sweep touches a file on the shared file system; who asks touches one as well, so that the
clocks of two machines are never compared.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "SWEEP_HEARTBEAT"  # environment of a job: seconds, a colon, the file
FILE = ".heartbeat"
BEATS = 10  # in the time after which a sweep counts as gone


@contextmanager
def beating(folder: Path, seconds: float) -> Iterator[dict[str, str]]:
    """Touch the file in a thread; gives what a job's environment must hold to look at it."""
    path = (folder / FILE).resolve()
    path.touch()
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(seconds / BEATS):
            with suppress(OSError):  # a shared file system fails now and then: the next beat counts
                path.touch()

    thread = threading.Thread(target=beat, name="heartbeat", daemon=True)
    thread.start()
    try:
        yield {VARIABLE: f"{seconds:g}:{path}"}
    finally:
        ended.set()
        thread.join()


class Listener:
    """Asks rarely, however often it is asked."""

    def __init__(self) -> None:
        limit, _, self._path = os.environ.get(VARIABLE, "").partition(":")
        self._limit = float(limit or 0)
        self._asked = float("-inf")
        self._stopped = False

    def is_stopped(self) -> bool:
        """Whether the sweep of this job is gone; never without one."""
        now = time.monotonic()
        if self._path and now - self._asked > self._limit / BEATS:
            self._asked, self._stopped = now, _age(Path(self._path)) > self._limit
        return self._stopped


def _age(path: Path) -> float:
    """Seconds, by the clock of the file system; infinite if the folder was removed.

    Zero where that cannot be told, as on a full disk: no reason to end a case.
    """
    try:
        with tempfile.TemporaryFile(dir=path.parent) as now:
            return os.fstat(now.fileno()).st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return float("inf")
    except OSError:
        return 0.0
