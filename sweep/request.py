"""A sweep as asked for on the command line -> the cases that it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from sweep import estimates, history, listing, shards, suite
from sweep.machine import Machine
from sweep.plan import Compose, Planned, plan, varying_keys
from sweep.slots import Pool


@dataclass(frozen=True)
class Request:
    """What is said of the sweep as a whole, apart from its cases."""

    experiment: str
    rows: Sequence[Mapping[str, Any]]
    shard: tuple[int, int] | None
    plan_only: bool
    outputs: Path

    @classmethod
    def of(cls, config: DictConfig) -> Request:
        """From the config that Hydra composed of what does not vary; raises RequestError."""
        chosen = config.suite
        return cls(
            experiment="adhoc" if chosen is None else chosen.name,
            rows=[] if chosen is None else OmegaConf.to_container(chosen.rows),  # type: ignore[arg-type]  # a list, by the schema
            shard=None if config.shard is None else shards.parse(str(config.shard)),
            plan_only=config.plan,
            outputs=Path(config.outputs),
        )

    def cases(
        self, overrides: Sequence[Override], compose: Compose, machine: Machine
    ) -> list[Planned]:
        """The cases of this request, or of its shard."""
        narrowed = suite.combinations(suite.choices(overrides), self.rows)
        varying = varying_keys([*suite.combinations({}, self.rows), *narrowed])
        planned = plan(narrowed, compose, machine, varying)
        if self.shard is not None:
            planned = shards.select(planned, self.seconds(planned), self.shard)
        return planned

    def seconds(self, planned: Sequence[Planned]) -> dict[str, float]:
        """Case id -> estimate."""
        device = planned[0].case.device
        recorded = history.durations(self.outputs, device, estimates.cut_off())
        return estimates.seconds(planned, recorded)

    def show(self, planned: Sequence[Planned], machine: Machine) -> None:
        """Print the plan."""
        slots = Pool(machine, planned[0].settings.launch.slots).slots
        listing.show(planned, self.seconds(planned), slots)
