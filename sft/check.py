"""What this trainer would refuse, of many configurations at once, without importing torch.

python -m sft --check [FILE]: a JSON list of configurations, from standard input without a file.
Each may say under `assume` on what it will run. The answer is a JSON list with, for each of them,
null or {"reason": ..., "unfit": ...}: unfit is true where another machine, layout, dtype or model
could run it, and false where the configuration is wrong everywhere.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from sft import config, faults, kernels
from sft.errors import ConfigError, UnfitError

Answer = dict[str, Any] | None


@dataclass
class Assumed:
    """What is known of a run before it starts; nothing is checked against what is not known."""

    device: str | None = None
    """cpu or cuda."""
    model: str = "the model"
    """What messages call it."""
    layers: list[str] | None = None
    """Kinds of layers that it has, by the modules of `sft/context`: indexer, gated_delta, ..."""


@dataclass
class Assuming:
    assume: Assumed = field(default_factory=Assumed)


SCHEMA = OmegaConf.structured(Assuming)


def main(path: Path) -> None:
    """Print the answers; raises `ConfigError` if there is no list to answer."""
    print(json.dumps(answers(config.read(path), str(path))))


def answers(asked: object, source: str) -> list[Answer]:
    """An answer for each configuration; raises `ConfigError` if it is no list of them."""
    if not isinstance(asked, list):
        raise ConfigError(f"{source} is no JSON list; write [config, ...] as sft/check.py says")
    return [answer(item) for item in asked]


def answer(item: object) -> Answer:
    """Why a configuration is refused; None if it is not."""
    try:
        check(item)
    except ConfigError as error:
        return {"reason": str(error), "unfit": isinstance(error, UnfitError)}
    return None


def check(item: object) -> None:
    """Raise `ConfigError` if the trainer would, as far as it can be known here."""
    if not isinstance(item, dict):
        raise ConfigError("a configuration is a JSON object; see sft/config.py for its keys")
    assumed = {key: item[key] for key in item if key == "assume"}
    asked = parsed(json.dumps({key: item[key] for key in item if key not in assumed}))
    about = assumption(json.dumps(assumed))
    if asked.fault is not None:
        faults.parse(asked.fault)
    if about.device is not None:
        kernels.check_device(asked.model, about.device)
    if about.layers is not None:
        kernels.check_model(asked.model, about.model, set(about.layers))


# The cases of a plan have much in common, and each conversion takes milliseconds.
@cache
def parsed(text: str) -> config.Config:
    """The configuration that JSON holds; raises `ConfigError`."""
    return config.parse(json.loads(text), "configuration")


@cache
def assumption(text: str) -> Assumed:
    """What JSON holds under `assume`; raises `ConfigError`."""
    assuming: Assuming = config.typed(SCHEMA, json.loads(text), "configuration")
    return assuming.assume
