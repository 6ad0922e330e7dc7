"""Adapters: all that a sweep knows of a trainer. One module each."""

from __future__ import annotations

import importlib
from typing import cast

from sweep.errors import RequestError
from sweep.schema import TRAINERS, Settings
from sweep.trainers.base import Trainer


def load(name: str) -> Trainer:
    """The adapter of that name; raises RequestError with the choices."""
    if name not in TRAINERS:
        choices = ", ".join(TRAINERS)
        raise RequestError(f"trainer.adapter={name}: no such adapter; choose from {choices}")
    return cast(Trainer, importlib.import_module(f"sweep.trainers.{name}").TRAINER)


def of(settings: Settings) -> Trainer:
    """The adapter of the case's trainer; raises RequestError."""
    return load(settings.trainer.adapter)
