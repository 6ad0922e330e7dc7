"""Adapters: all that a sweep knows of a trainer. One module each, named as in `conf/trainer`."""

from __future__ import annotations

import importlib
from typing import cast

from sweep.errors import RequestError
from sweep.trainers.base import Trainer

NAMES = ("sft", "command")


def load(name: str) -> Trainer:
    """The adapter of that name; raises RequestError with the choices."""
    if name not in NAMES:
        raise RequestError(f"trainer {name}: no such adapter; choose from {', '.join(NAMES)}")
    return cast(Trainer, importlib.import_module(f"sweep.trainers.{name}").TRAINER)
