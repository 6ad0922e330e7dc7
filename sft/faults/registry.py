"""A fault as a configuration names it."""

from __future__ import annotations

import difflib
import math

from sft.errors import ConfigError
from sft.faults.catalogue import FAULTS, Fault


def parse(text: str) -> tuple[Fault, float]:
    """`name[:strength]` -> the fault and its strength; raises `ConfigError` with the next step."""
    name, colon, number = text.partition(":")
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else "there is no such fault:"
        raise ConfigError(f"fault={text}: {hint} python -m sft.faults lists them")
    fault = FAULTS[name]
    if not colon:
        return fault, fault.strengths[0] if fault.strengths else 1.0
    if not fault.strengths:
        raise ConfigError(f"fault={text}: {name} has no strength; use fault={name}")
    if not _is_finite(number):
        raise ConfigError(
            f"fault={text}: the strength is a number ({fault.strength}); "
            f"use fault={name}:{fault.strengths[0]:g}"
        )
    return fault, float(number)


def _is_finite(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
