"""Adapters: all that a sweep knows of a trainer. One module each, which registers itself.

An adapter's module has a subclass of `schema.TrainerConf` (its keys in `conf/trainer`) and
`TRAINER` (what translates a case for it).
"""

from __future__ import annotations

import sys
from typing import cast

from sweep.errors import RequestError
from sweep.schema import Settings, trainer_confs
from sweep.trainers.base import Trainer


def load(name: str) -> Trainer:
    """The adapter of that name; raises RequestError with the choices."""
    confs = trainer_confs()
    if name not in confs:
        choices = ", ".join(confs)
        raise RequestError(f"trainer.adapter={name}: no such adapter; choose from {choices}")
    module = sys.modules[confs[name].__module__]
    if not hasattr(module, "TRAINER"):
        raise RequestError(
            f"trainer.adapter={name}: {module.__name__} has no TRAINER; add it there"
        )
    return cast(Trainer, module.TRAINER)


def of(settings: Settings) -> Trainer:
    """The adapter of the case's trainer; raises RequestError."""
    return load(settings.trainer.adapter)
