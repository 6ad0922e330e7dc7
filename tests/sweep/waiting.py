"""Waiting for what comes when it comes, and never for longer than a test may take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(condition: Callable[[], Found], what: str, seconds: float = 60.0) -> Found:
    """What `condition` returns once that is true; fails with `what` it was waiting for."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        time.sleep(0.05)
    return found
