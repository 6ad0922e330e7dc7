"""A suite split over several runners by architecture, the longest first.

Its cases stay together: they share a checkpoint, and are compared with each other, features with
base cases too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sweep.case.planned import Planned
from sweep.errors import RequestError


def parse(text: str) -> tuple[int, int]:
    """`2/4` -> (2, 4); raises RequestError."""
    found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if found is None or int(found[1]) > int(found[2]):
        raise RequestError(f"shard={text}: say I/N with I from 1 to N, as in shard=1/4")
    return int(found[1]), int(found[2])


def select(
    planned: Sequence[Planned], seconds: Mapping[str, float], shard: tuple[int, int]
) -> list[Planned]:
    """The shard's part of the plan, in the plan's order; `seconds` estimates each case by id.

    Raises RequestError if there is nothing left for this shard.
    """
    index, count = shard
    times: dict[str, float] = {}
    for one in planned:  # what is unavailable too: another runner may have it, and splits alike
        times[one.case.arch] = times.get(one.case.arch, 0.0) + seconds[one.case.id]
    packed = pack(times, min(count, len(times)))  # a typed 1000000000 would take all memory
    mine = set(packed[index - 1]) if index <= len(packed) else set()
    found = [one for one in planned if one.case.arch in mine]
    if not found:
        raise RequestError(
            f"shard={index}/{count}: there are only {len(times)} architectures to share out"
        )
    return found


def pack(times: Mapping[str, float], count: int) -> list[list[str]]:
    """`count` lists whose longest is short: longest first, then moves and swaps while they help.

    The same times give the same lists, whatever their order.
    """
    bins: list[list[str]] = [[] for _ in range(count)]
    loads = [0.0] * count
    for unit in sorted(times, key=lambda unit: (-times[unit], unit)):
        emptiest = loads.index(min(loads))
        bins[emptiest].append(unit)
        loads[emptiest] += times[unit]
    while _improve(bins, loads, times):
        pass
    return bins


def _improve(bins: list[list[str]], loads: list[float], times: Mapping[str, float]) -> bool:
    """Shorten the longest list by one move or swap; False if none does."""
    longest = loads.index(max(loads))
    for other in range(len(bins)):
        for unit in bins[longest] if other != longest else []:
            for swapped in [None, *bins[other]]:
                change = times[unit] - (times[swapped] if swapped else 0.0)
                if change > 1e-9 and loads[other] + change < loads[longest] - 1e-9:
                    _exchange(bins, longest, other, unit, swapped)
                    loads[longest] -= change
                    loads[other] += change
                    return True
    return False


def _exchange(bins: list[list[str]], one: int, other: int, unit: str, swapped: str | None) -> None:
    bins[one].remove(unit)
    bins[other].append(unit)
    if swapped is not None:
        bins[other].remove(swapped)
        bins[one].append(swapped)
