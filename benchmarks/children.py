"""What the processes that a benchmark has started took."""

from __future__ import annotations

import os
import resource


def cpu_seconds() -> float:
    """User and system time of all children that have ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def reap() -> None:
    """Wait for all children, those of ended children included."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return
