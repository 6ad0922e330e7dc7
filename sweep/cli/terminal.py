"""What every command begins with: output that outlives its reader, few garbage collections."""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from typing import Any

from sweep.errors import RequestError


class _Lasting(io.FileIO):
    """A descriptor that swallows everything once it cannot be written any more."""

    def write(self, data: Any, /) -> int:
        """As FileIO's, and never raises."""
        try:
            return super().write(data) or 0
        except OSError:  # nobody reads, the terminal is gone, the log's disk is full
            hole = os.open(os.devnull, os.O_WRONLY)
            os.dup2(hole, self.fileno())
            os.close(hole)
            return memoryview(data).nbytes


OBJECTS = 50_000  # new ones before Python looks for garbage; its default is 700


def collect_rarely() -> None:
    """Look for cyclic garbage rarely, and not at all at the end of the process.

    Importing makes objects that stay: to look through them takes a quarter of MLflow's import, and
    at the end a second.
    """
    gc.set_threshold(OBJECTS)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)


def steady() -> None:
    """Make stdout and stderr such streams, which say what their encoding cannot as `?`.

    A descriptor that is closed is opened first: a file of ours would get its number otherwise.
    """
    _open_all()
    collect_rarely()
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is not getattr(sys, f"__{name}__"):  # somebody captures it
            continue
        if stream is not None:
            stream.flush()
        encoding = "utf-8" if stream is None else stream.encoding
        raw = io.BufferedWriter(_Lasting(descriptor, "w", closefd=False))
        setattr(
            sys,
            name,
            io.TextIOWrapper(
                raw, encoding, "replace", line_buffering=descriptor == 2 or raw.isatty()
            ),
        )


def check_linux() -> None:
    """Raise RequestError on another system: processes are found by /proc and ended by prctl."""
    if sys.platform != "linux":
        raise RequestError(f"this is {sys.platform}, and Linux is needed: use WSL or a container")


def _open_all() -> None:
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
