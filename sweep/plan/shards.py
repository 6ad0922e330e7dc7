"""Splits a suite over several runners, by architecture.

The cases of an architecture stay together: they share a checkpoint and are compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sweep.case.planned import Planned
from sweep.errors import RequestError


def parse(text: str) -> tuple[int, int]:
    """Parse `2/4` to (2, 4); raises RequestError."""
    matched = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if matched is None or int(matched[1]) > int(matched[2]):
        raise RequestError(f"shard={text}: say I/N with I from 1 to N, as in shard=1/4")
    return int(matched[1]), int(matched[2])


def select(
    planned: Sequence[Planned], seconds: Mapping[str, float], shard: tuple[int, int]
) -> list[Planned]:
    """The shard's part of the plan, in the plan's order; `seconds` estimates each case by id.

    Raises RequestError if this shard has no architecture.
    """
    index, count = shard
    times: dict[str, float] = {}
    for item in planned:  # also unavailable ones, since every runner must split alike
        times[item.case.arch] = times.get(item.case.arch, 0.0) + seconds[item.case.id]
    packed = pack(times, min(count, len(times)))  # shard=1/1000000000 would take all memory
    mine = set(packed[index - 1]) if index <= len(packed) else set()
    part = [item for item in planned if item.case.arch in mine]
    if not part:
        raise RequestError(
            f"shard={index}/{count}: there are only {len(times)} architectures to share out"
        )
    return part


def pack(times: Mapping[str, float], count: int) -> list[list[str]]:
    """`count` lists of similar length: the longest unit first, each to the shortest list so far.

    The same times give the same lists, whatever their order.
    """
    packed: list[list[str]] = [[] for _ in range(count)]
    for unit in sorted(times, key=lambda unit: (-times[unit], unit)):
        min(packed, key=lambda units: sum(times[other] for other in units)).append(unit)
    return packed
