"""Ctrl-C, SIGTERM and a terminal that closes: the first ends a sweep in order, the next at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sweep.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """How often the sweep was asked by a signal to stop."""

    def __init__(self) -> None:
        self._asked = 0
        self._closing = False

    @property
    def hurried(self) -> bool:
        """Whether a second signal asked to end at once."""
        return self._asked > 1

    def close(self) -> None:
        """From now on the next signal only hurries; the one after it interrupts."""
        self._closing = True
        self._asked = min(self._asked, 1)

    def signalled(self, number: int, _frame: FrameType | None) -> None:
        """Count a signal; raises Interrupted unless it only hurries."""
        self._asked += 1
        if self._asked == 2 or (self._closing and self._asked == 1):
            return
        raise Interrupted(signal.Signals(number).name)


@contextmanager
def watched() -> Iterator[Stop]:
    """Turn signals into Interrupted; those ignored at the start (nohup, &) stay ignored."""
    stop = Stop()
    heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop.signalled) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
