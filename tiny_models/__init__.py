"""Tiny seeded checkpoints of thirteen architectures, for tests of trainers.

Importing this package imports neither torch nor transformers.
"""

from __future__ import annotations

from .cache import ensure
from .errors import TinyModelError
from .manifest import content_digest
from .model import Source, TinyModel
from .registry import get, names
from .writer import write

__all__ = [
    "Source",
    "TinyModel",
    "TinyModelError",
    "content_digest",
    "ensure",
    "get",
    "names",
    "write",
]
