"""Combinations of overrides -> an ordered list of cases without duplicates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from omegaconf import DictConfig, OmegaConf

import tiny_models
from sweep import trainers
from sweep.case.labels import case_of, settings_of, slug
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import RequestError
from sweep.plan import env_set
from sweep.schema import LaunchMode, Settings
from sweep.trainers.base import Trainer

Compose = Callable[[Sequence[str]], DictConfig]
NAMED = ("arch", "layout", "feature", "fault", "variant")  # always part of a case's id
Varying = Mapping[str, Collection[str]]
"""Variant, empty for none -> the override keys that are part of its cases' ids."""


def plan(
    combinations: Sequence[Sequence[str]],
    compose: Compose,
    machine: Machine,
    varying: Varying = MappingProxyType({}),
) -> list[Planned]:
    """Compose and resolve every combination; two that come to the same case are one.

    The keys in `varying` go into the cases' ids.
    Raises RequestError if nothing was selected; what composing raises says which file is wrong.
    """
    planned: dict[str, Planned] = {}
    for overrides in combinations:
        case = resolved(overrides, compose(overrides), machine, suffix(overrides, varying))
        planned.setdefault(case.case.id, case)
    if not planned:
        raise RequestError("nothing selected: name at least one arch and one layout")
    return checked(list(planned.values()))


def plan_one(
    overrides: Sequence[str], config: DictConfig, machine: Machine, more: str = ""
) -> Planned:
    """One composed combination as a case."""
    [planned] = checked([resolved(overrides, config, machine, more)])
    return planned


def resolved(
    overrides: Sequence[str], config: DictConfig, machine: Machine, more: str = ""
) -> Planned:
    """One composed combination as a case of which the trainer was not asked yet (`checked`)."""
    settings = settings_of(config, machine)
    case = case_of(settings, more)
    settings = replace(settings, case_id=case.id)
    env = env_set.of(config)
    again = (*env_set.left_out(overrides, env), *env_set.as_overrides(env))
    too_large = _too_large(settings, config, machine)
    return Planned(case, settings, again, too_large, _own_folder(config), env)


def _own_folder(config: DictConfig) -> str | None:
    """The folder of --config-dir that the case was composed with."""
    sources = OmegaConf.select(config, "hydra.runtime.config_sources") or []
    return next((source.path for source in sources if source.provider == "command-line"), None)


def launcher_of(config: DictConfig) -> str | None:
    """The choice of hydra/launcher; None in a config without Hydra's part."""
    choices = OmegaConf.select(config, "hydra.runtime.choices") or {}
    name: str | None = choices.get("hydra/launcher")
    return name


def checked(planned: Sequence[Planned]) -> list[Planned]:
    """The cases with why each cannot run, if so; each adapter is asked once, for all of its cases.

    Raises RequestError for what could run nowhere.
    """
    adapters = dict.fromkeys(case.settings.trainer.adapter for case in planned)
    reasons: dict[str, str | None] = {}
    for name in adapters:
        cases = [case.settings for case in planned if case.settings.trainer.adapter == name]
        reasons |= _reasons(trainers.load(name), cases)
    return [
        replace(case, unavailable=reasons[case.case.id] or case.unavailable) for case in planned
    ]


def _reasons(trainer: Trainer, cases: Sequence[Settings]) -> dict[str, str | None]:
    """Case id -> why the trainer cannot run it, if so."""
    reasons = {str(case.case_id): _not_started(trainer, case) for case in cases}
    startable = [case for case in cases if reasons[str(case.case_id)] is None]
    for case, reason in zip(startable, trainer.check(startable), strict=True):
        reasons[str(case.case_id)] = reason
        if reason is None and trainer.needs_checkpoint(case):
            _check_arch(case.arch.name)
    return reasons


def _not_started(trainer: Trainer, settings: Settings) -> str | None:
    """What the adapter has no way to start."""
    if settings.launch.mode is LaunchMode.warm and trainer.server(settings) is None:
        return "launch.mode=warm: this trainer's ranks can only be started cold here"
    if settings.trainer.python is not None and settings.layout.nodes > 1:
        return "trainer.python: on several nodes ranks run in the sweep's own interpreter"
    return None


def _check_arch(name: str) -> None:
    """Raise RequestError for an arch of somebody's own that no checkpoint can be made of."""
    if name not in tiny_models.names():
        choices = ", ".join(tiny_models.names())
        raise RequestError(f"arch.name={name}: tiny_models has no such arch; choose from {choices}")


def _too_large(settings: Settings, config: DictConfig, machine: Machine) -> str | None:
    """What the case takes beyond this machine; Slurm has others."""
    if launcher_of(config) == "slurm":
        return None
    if settings.layout.nodes > 1:
        return f"{settings.layout.nodes} nodes take hydra/launcher=slurm, and -m"
    needed, there = settings.gpus_per_node, len(machine.gpus)
    return f"GPUs needed: {needed}; this machine has {there}" if needed > there else None


def varying_keys(*suites: Sequence[Sequence[str]]) -> Varying:
    """Override keys that differ between the combinations of a suite and are not part of the id.

    Combinations of one variant are compared with each other: its name stands for what differs from
    those of another.
    """
    varying: defaultdict[str, set[str]] = defaultdict(set)
    for combinations in suites:
        combined = [dict(map(_pair, overrides)) for overrides in combinations]
        for variant in {_variant(values) for values in combined}:
            alike = [values for values in combined if _variant(values) == variant]
            keys = {key for values in alike for key in values if key not in NAMED}
            varying[variant] |= {
                key for key in keys if len({values.get(key) for values in alike}) > 1
            }
    return varying


def suffix(overrides: Sequence[str], varying: Varying) -> str:
    """The part of a case's id that holds its variant, and its values of the keys that vary."""
    values = dict(map(_pair, overrides))
    variant = _variant(values)
    keys = varying.get(variant, ())
    parts = [variant, *(f"{key}_{value}" for key, value in values.items() if key in keys)]
    return "".join("-" + slug(part) for part in parts if part)


def _variant(values: Mapping[str, str]) -> str:
    variant = values.get("variant", "null")
    return "" if variant == "null" else variant


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value
