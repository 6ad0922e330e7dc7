"""Finding architectures: each module of `tiny_models.archs` holds one as `MODEL`."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from . import archs
from .errors import TinyModelError
from .model import TinyModel


def names() -> list[str]:
    """The names of all architectures, sorted."""
    return sorted(module.name for module in pkgutil.iter_modules(archs.__path__))


def get(name: str) -> TinyModel:
    """The architecture `name`; TinyModelError, naming the nearest, if there is none."""
    if name not in names():
        near = difflib.get_close_matches(name, names(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise TinyModelError(f"unknown arch {name!r}: {hint}choose one of {', '.join(names())}")
    model = importlib.import_module(f"{archs.__name__}.{name}").MODEL
    assert isinstance(model, TinyModel)
    return model
