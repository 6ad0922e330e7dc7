"""Imported for its effect: what `sft/preload.py` does, where only modules can be named."""

from __future__ import annotations

from sft import preload

preload.trainer()
