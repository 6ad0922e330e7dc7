"""Sweeps that were planned and never ran, for `sweep.locate` to run what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from sweep.case.folder import write_plan
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.files import conf_dir
from sweep.plan import plan, varying_keys
from tests.sweep.planning import composed


def sweep_of(outputs: Path, *combinations: str, conf: Path | None = None) -> list[Planned]:
    """Plan these cases as the sweep `planned` of an output folder; `conf`: a folder of choices."""

    def with_own(overrides: Sequence[str]) -> DictConfig:
        own = f"hydra.searchpath=[file://{conf}]"
        with initialize_config_dir(str(conf_dir()), version_base="1.3"):
            return compose("config", [own, *overrides])

    words = [one.split() for one in combinations]
    compose_case = composed if conf is None else with_own
    cases = plan(words, compose_case, Machine(), varying_keys(words))
    write_plan(outputs / "planned", cases, "adhoc", {}, [])
    return cases
