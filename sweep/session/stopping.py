"""Ctrl-C, SIGTERM and a terminal that closes: the first ends a sweep in order, the next at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from sweep.errors import Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stop:
    """What was asked of a sweep by signals so far."""

    def __init__(self) -> None:
        self._asked = 0
        self._closing = False

    @property
    def hurried(self) -> bool:
        """Whether somebody who waits for the end wants it sooner."""
        return self._asked > 1

    def close(self) -> None:
        """From now on a signal interrupts nothing that is being written, unless it comes again."""
        self._closing = True
        self._asked = min(self._asked, 1)

    def signalled(self, number: int, _frame: FrameType | None) -> None:
        """Interrupt what runs; raises Interrupted, but for the one signal that only hurries."""
        self._asked += 1
        if self._asked == 2 or (self._closing and self._asked == 1):
            return
        raise Interrupted(signal.Signals(number).name)


@contextmanager
def watched() -> Iterator[Stop]:
    """Signals become Interrupted; one that we were started to ignore (nohup, &) stays ignored."""
    stop = Stop()
    heard = [one for one in SIGNALS if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, stop.signalled) for one in heard}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
