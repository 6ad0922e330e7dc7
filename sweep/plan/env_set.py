"""`hydra.job.env_set`: what a case adds to the environment of its job, and so of its trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omegaconf import DictConfig, OmegaConf

from sweep.plan.spelling import quoted

KEY = "hydra.job.env_set"


def of(config: DictConfig) -> dict[str, str]:
    """The variables of a composed case."""
    variables = OmegaConf.select(config, KEY)
    return {} if variables is None else {str(key): str(value) for key, value in variables.items()}


def as_overrides(variables: Mapping[str, str]) -> list[str]:
    """The variables as overrides, with which the case is composed again."""
    return [f"++{KEY}.{name}={quoted(value)}" for name, value in variables.items()]


def left_out(overrides: Sequence[str], variables: Mapping[str, str]) -> list[str]:
    """The overrides without those of an earlier run that give these variables a value."""
    theirs = tuple(f"++{KEY}.{name}=" for name in variables)
    return [override for override in overrides if not override.startswith(theirs)]
