"""Combinations of overrides -> an ordered list of cases, each there once."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from omegaconf import DictConfig, OmegaConf

import tiny_models
from sweep import trainers
from sweep.case.labels import case_of, settings_of, slug
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import RequestError
from sweep.files import config_dir_of
from sweep.schema import LaunchMode, Settings

Compose = Callable[[Sequence[str]], DictConfig]
NAMED = ("arch", "layout", "feature", "fault")  # what a case's id says in any case


def plan(
    combinations: Sequence[Sequence[str]],
    compose: Compose,
    machine: Machine,
    varying: Collection[str] = (),
) -> list[Planned]:
    """Compose and resolve every combination; two that come to the same case are one.

    The keys in `varying` go into the cases' ids.
    Raises RequestError if nothing was selected; what composing raises says which file is wrong.
    """
    planned: dict[str, Planned] = {}
    for overrides in combinations:
        one = plan_one(overrides, compose(overrides), machine, _suffix(overrides, varying))
        planned.setdefault(one.case.id, one)
    if not planned:
        raise RequestError("nothing selected: name at least one arch and one layout")
    return list(planned.values())


def plan_one(
    overrides: Sequence[str], config: DictConfig, machine: Machine, suffix: str = ""
) -> Planned:
    """One composed combination as a case."""
    settings = settings_of(config, machine)
    case = case_of(settings, suffix)
    settings = replace(settings, case_id=case.id)
    unavailable = _unavailable(settings) or _too_large(settings, config, machine)
    return Planned(case, settings, tuple(overrides), unavailable, config_dir_of(sys.argv)[0])


def _unavailable(settings: Settings) -> str | None:
    trainer = trainers.of(settings)
    if settings.fault is not None and settings.trainer.adapter != "sft":
        return f"trainer={settings.trainer.name} has no fault={settings.fault} to plant"
    if settings.launch.mode is LaunchMode.warm and trainer.server(settings) is None:
        return "launch.mode=warm: this trainer's ranks can only be started cold here"
    reason = trainer.unavailable(settings)
    if reason is None and trainer.needs_checkpoint(settings):
        _check_arch(settings.arch.name)
    return reason


def _check_arch(name: str) -> None:
    """Raise RequestError for an arch of somebody's own that no checkpoint can be made of."""
    if name not in tiny_models.names():
        choices = ", ".join(tiny_models.names())
        raise RequestError(f"arch.name={name}: tiny_models has no such arch; choose from {choices}")


def _too_large(settings: Settings, config: DictConfig, machine: Machine) -> str | None:
    """What the case takes beyond this machine; Slurm has others."""
    choices = OmegaConf.select(config, "hydra.runtime.choices") or {}
    if choices.get("hydra/launcher") == "slurm":
        return None
    if settings.layout.nodes > 1:
        return f"{settings.layout.nodes} nodes take hydra/launcher=slurm, and -m"
    needed, there = settings.gpus_per_node, len(machine.gpus)
    return f"GPUs needed: {needed}; this machine has {there}" if needed > there else None


def varying_keys(combinations: Sequence[Sequence[str]]) -> set[str]:
    """The keys with more than one value, or said in some combinations only, that no id has yet."""
    said = [dict(_pair(override) for override in overrides) for overrides in combinations]
    keys = {key for one in said for key in one if key not in NAMED}
    return {key for key in keys if len({one.get(key) for one in said}) > 1}


def _suffix(overrides: Sequence[str], varying: Collection[str]) -> str:
    pairs = [_pair(override) for override in overrides]
    return "".join("-" + slug(f"{key}_{value}") for key, value in pairs if key in varying)


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value


def spelled(value: str) -> str:
    """A string as an override's value: quoted where Hydra would take a sign in it for its own."""
    return value if re.fullmatch(r"[\w.+:/-]+", value) else quoted(value)


def quoted(value: str) -> str:
    """A string as Hydra's override grammar reads it back unchanged, whatever is in it."""
    escaped = value.replace("\\'", "\\\\'").replace("'", "\\'")
    if escaped.endswith("\\"):
        escaped += "\\"
    return f"'{escaped}'"
