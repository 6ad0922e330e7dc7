"""Cases planned as the command line would have them."""

from __future__ import annotations

from collections.abc import Sequence

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

import sweep.cli.app  # noqa: F401  # registers the schema
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.files import conf_dir
from sweep.plan import plan, varying_keys

CPU = Machine()
COMMAND = ("trainer=command", "trainer.argv=[true]")


def composed(overrides: Sequence[str]) -> DictConfig:
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("config", [*overrides])


def planned(*combinations: Sequence[str], machine: Machine = CPU) -> list[Planned]:
    combined = [[*one, *COMMAND] for one in combinations]
    return plan(combined, composed, machine, varying_keys(combined))
