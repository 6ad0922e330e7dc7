"""How long cases take: from recorded runs of the same device kind, else from conf/estimates.yaml.

Recorded runs count only up to a cut-off that all shards of one night agree on: a shard that starts
later must not see what an earlier one has just recorded, or they would split the suite differently.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from omegaconf import OmegaConf

from sweep import trainers
from sweep.case.planned import Planned
from sweep.files import conf_dir
from sweep.trainers.base import all_launches

DAY = 86_400
SETTLE = 6 * 3600  # a night's shards start within some hours of each other, often around midnight


def cut_off(now: float | None = None) -> float:
    """Midnight (UTC) of the day that it was six hours ago, in seconds since the epoch."""
    then = (time.time() if now is None else now) - SETTLE
    return then - then % DAY


def seconds(
    planned: Sequence[Planned], recorded: Mapping[str, Sequence[float]]
) -> dict[str, float]:
    """Case id -> estimate; `recorded` has the seconds of good runs by case id, of one device."""
    table: Any = OmegaConf.to_container(OmegaConf.load(conf_dir() / "estimates.yaml"))
    return {case.case.id: _seconds(case, recorded, table) for case in planned}


def launches(planned: Planned) -> tuple[int, int]:
    """How often the case starts its trainer: at least, where its repeats are equal; at most."""
    trainer = trainers.of(planned.settings)
    every = all_launches(trainer, planned.settings)
    first = [launch for launch in every if launch.repeats is None]
    return min(len(first) + 1, len(every)), len(every)


def _seconds(planned: Planned, recorded: Mapping[str, Sequence[float]], table: Any) -> float:
    if recorded.get(planned.case.id):
        return median(recorded[planned.case.id])
    of_device = table[planned.case.device]
    least, most = launches(planned)
    count = (
        least if planned.case.device == "cpu" else most
    )  # where sums have an order, repeats agree
    return float(of_device["arch"].get(planned.case.arch, of_device["default"])) * count
