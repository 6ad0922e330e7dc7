"""How many jobs run at once on one machine, and on which GPUs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from sweep.machine import Machine

POLL_SECONDS = 0.2


class Handle(Protocol):
    """A job that was started."""

    def done(self) -> bool:
        """Whether it has ended, however."""
        ...


H = TypeVar("H", bound=Handle)


class Pool:
    """The machine's GPUs and slots; without a GPU there is one slot unless `slots` says more."""

    def __init__(self, machine: Machine, slots: int | None) -> None:
        self._free = list(machine.gpus)
        self.slots = slots or (len(machine.gpus) or 1)

    def take(self, gpus: int) -> tuple[str, ...] | None:
        """Reserve a slot and that many GPUs; None if they are not free now."""
        if self.slots == 0 or gpus > len(self._free):
            return None
        self.slots -= 1
        taken, self._free = self._free[:gpus], self._free[gpus:]
        return tuple(taken)

    def give_back(self, gpus: tuple[str, ...]) -> None:
        """Free what `take` returned."""
        self.slots += 1
        self._free.extend(gpus)


class SlotRunner(Generic[H]):
    """Starts each job as soon as there is room for it; the end of one says nothing of another."""

    def __init__(
        self,
        pool: Pool,
        start: Callable[[int, tuple[str, ...]], H],
        ended: Callable[[int, H], None],
        tick: Callable[[], None],
    ) -> None:
        self._pool, self._start, self._ended, self._tick = pool, start, ended, tick
        self.running: dict[int, tuple[H, tuple[str, ...]]] = {}

    def run(self, gpus_of: Sequence[int]) -> None:
        """Run jobs 0 to n-1, where job i needs gpus_of[i] GPUs, in order as far as they fit."""
        waiting = list(range(len(gpus_of)))
        while waiting or self.running:
            self._collect()
            waiting = self._fill(waiting, gpus_of)
            self._tick()
            if self.running:
                time.sleep(POLL_SECONDS)

    def _collect(self) -> None:
        for index, (handle, gpus) in list(self.running.items()):
            if handle.done():
                del self.running[index]
                self._ended(index, handle)  # ends what the job left, before its slot is given on
                self._pool.give_back(gpus)

    def _fill(self, waiting: list[int], gpus_of: Sequence[int]) -> list[int]:
        left = []
        for index in waiting:
            gpus = self._pool.take(gpus_of[index])
            if gpus is None:
                left.append(index)
            else:
                self.running[index] = (self._start(index, gpus), gpus)
        return left
