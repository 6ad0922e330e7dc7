"""Imported for its effect: what `sft/warm/preload.py` does, where only modules can be named."""

from __future__ import annotations

from sft.warm import preload

preload.trainer()
