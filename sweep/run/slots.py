"""How many jobs run at once on one machine, on which GPUs, and for how long."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Generic, Protocol, TypeVar

from sweep import trainers
from sweep.case.machine import Machine
from sweep.schema import LaunchConf, Settings
from sweep.trainers.base import all_launches

POLL_SECONDS = 0.2
SPARE_MINUTES = 10  # for the checkpoint, imports, and ending what hangs


class Handle(Protocol):
    """A job that was started."""

    def done(self) -> bool:
        """Whether it has ended, however."""
        ...


H = TypeVar("H", bound=Handle)
J = TypeVar("J")
Gpus = tuple[str, ...]


class Pool:
    """The machine's slots, and its GPUs with room for `cases_per_gpu` cases each.

    Without a GPU there is one slot, with GPUs as many as there is room, unless `slots` says else.
    """

    def __init__(self, machine: Machine, limits: LaunchConf) -> None:
        self._room = dict.fromkeys(machine.gpus, limits.cases_per_gpu)
        self.slots = limits.slots or sum(self._room.values()) or 1

    def take(self, gpus: int) -> Gpus | None:
        """Reserve a slot and that many different GPUs, the emptiest; None if there is no room."""
        emptiest = sorted(self._room, key=lambda gpu: -self._room[gpu])[:gpus]
        if self.slots == 0 or len(emptiest) < gpus or not all(self._room[gpu] for gpu in emptiest):
            return None
        self.slots -= 1
        for gpu in emptiest:
            self._room[gpu] -= 1
        return tuple(emptiest)

    def admit(self, waiting: list[J], gpus_of: Callable[[J], int]) -> Iterator[tuple[J, Gpus]]:
        """Take for each of `waiting` what there is room for, in order; those leave the list."""
        for job in list(waiting):
            if (gpus := self.take(gpus_of(job))) is not None:
                waiting.remove(job)
                yield job, gpus

    def give_back(self, gpus: Gpus) -> None:
        """Free what `take` returned."""
        self.slots += 1
        for gpu in gpus:
            self._room[gpu] += 1


class SlotRunner(Generic[H]):
    """Starts each job as soon as there is room for it; the end of one says nothing of another."""

    def __init__(
        self,
        pool: Pool,
        start: Callable[[int, Gpus], H],
        ended: Callable[[int, H], None],
        tick: Callable[[], None],
    ) -> None:
        self._pool, self._start, self._ended, self._tick = pool, start, ended, tick
        self.running: dict[int, tuple[H, Gpus]] = {}

    def run(self, gpus_of: Sequence[int]) -> None:
        """Run jobs 0 to n-1, where job i needs gpus_of[i] GPUs, in order as far as they fit."""
        waiting = list(range(len(gpus_of)))
        while waiting or self.running:
            self._collect()
            for index, gpus in self._pool.admit(waiting, gpus_of.__getitem__):
                self.running[index] = (self._start(index, gpus), gpus)
            self._tick()
            if self.running:
                time.sleep(POLL_SECONDS)

    def _collect(self) -> None:
        for index, (handle, gpus) in list(self.running.items()):
            if handle.done():
                del self.running[index]
                self._ended(index, handle)  # ends what the job left, before its slot is given on
                self._pool.give_back(gpus)


def minutes(settings: Settings) -> int:
    """The job's limit in minutes, long enough that a launch always times out first."""
    launches = len(all_launches(trainers.of(settings), settings))
    return math.ceil(settings.launch.timeout_seconds * launches / 60) + SPARE_MINUTES


def makespan(pool: Pool, jobs: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Seconds until jobs of (seconds, GPUs) have ended, run as `SlotRunner` does; the most at once.

    Each must fit into the empty pool.
    """
    now, most, waiting = 0.0, 0, list(jobs)
    running: list[tuple[float, Gpus]] = []
    while waiting or running:
        for (seconds, _), taken in pool.admit(waiting, itemgetter(1)):
            heapq.heappush(running, (now + seconds, taken))
        most = max(most, len(running))
        now, taken = heapq.heappop(running)
        pool.give_back(taken)
    return now, most
