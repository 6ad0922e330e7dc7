"""Faults that trainers really have, planted on request: `fault: name[:strength]` in a config file.

For measuring what catches them. None is imported unless it is asked for. A fault is a function,
with an entry in `catalogue.py`. It changes one place, by wrapping it or by editing its source;
where that place is gone, or reads otherwise than it did, the run refuses to start: a fault that did
nothing never counts as one that was not caught.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sft.errors import ConfigError
from sft.faults.catalogue import FAULTS
from sft.faults.registry import parse

if TYPE_CHECKING:
    from sft.config import Config
    from sft.ranks import Ranks

__all__ = ["FAULTS", "parse", "plant"]


def plant(config: Config, ranks: Ranks) -> None:
    """Plant the fault that the configuration names, in this process; raises `ConfigError`."""
    from sft.faults.patching import Plant, PlantError  # they take the trainer itself

    if config.fault is None:
        return
    fault, strength = parse(config.fault)
    try:
        fault.apply(Plant(config, ranks, strength))
    except PlantError as error:
        raise ConfigError(f"fault={config.fault} cannot be planted: {error}") from None
    if ranks.rank == 0:
        print(f"fault planted: {config.fault}", flush=True)
