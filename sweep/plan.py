"""What to run: the command line's choices -> an ordered list of cases, each there once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from omegaconf import DictConfig

from sweep import trainers
from sweep.case import Case, case_of, settings_of, slug
from sweep.errors import RequestError
from sweep.machine import Machine
from sweep.schema import Settings

Compose = Callable[[Sequence[str]], DictConfig]
NAMED = ("arch", "layout", "feature")  # what a case's id says in any case


@dataclass(frozen=True)
class Planned:
    """A case, the overrides that compose it, and why it cannot run here, if so."""

    case: Case
    settings: Settings
    overrides: tuple[str, ...]
    unavailable: str | None = None


def plan(
    combinations: Sequence[Sequence[str]], compose: Compose, machine: Machine
) -> list[Planned]:
    """Compose and resolve every combination; two that come to the same case are one.

    Raises RequestError if nothing was selected; what composing raises says which file is wrong.
    """
    varying = _varying(combinations)
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
    unavailable = trainers.load(settings.trainer.name).unavailable(settings)
    return Planned(case, settings, tuple(overrides), unavailable)


def _varying(combinations: Sequence[Sequence[str]]) -> list[str]:
    """The keys that have more than one value in this sweep, apart from those that name a case."""
    values: dict[str, set[str]] = {}
    for overrides in combinations:
        for override in overrides:
            key, _, value = override.partition("=")
            values.setdefault(key.lstrip("+~"), set()).add(value)
    return [key for key, found in values.items() if len(found) > 1 and key not in NAMED]


def _suffix(overrides: Sequence[str], varying: Sequence[str]) -> str:
    pairs = (override.partition("=") for override in overrides)
    return "".join(
        "-" + slug(f"{key.lstrip('+~')}_{value}")
        for key, _, value in pairs
        if key.lstrip("+~") in varying
    )


def quoted(value: str) -> str:
    """A string as Hydra's override grammar reads it back unchanged, whatever is in it."""
    escaped = value.replace("\\'", "\\\\'").replace("'", "\\'")
    if escaped.endswith("\\"):
        escaped += "\\"
    return f"'{escaped}'"
