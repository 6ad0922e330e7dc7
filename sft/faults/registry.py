"""All faults by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sft.errors import ConfigError
from sft.faults.patching import Plant

Apply = Callable[[Plant], None]
KINDS = (
    "reduction", "losses", "resuming", "context", "weights", "routing", "recompute", "compiler",
    "optimizing", "offload", "processes", "documents", "formulas",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One way in which a trainer can be wrong."""

    name: str
    apply: Apply
    seen: tuple[str, ...]
    """Public reports of something alike; none where it is what the oracle is there for."""
    strength: str
    """What the number after the colon is."""
    strengths: tuple[float, ...]
    """Values worth trying, the default first; empty where there is nothing to choose."""

    @property
    def breaks(self) -> str:
        """What it breaks, in one line."""
        return str(self.apply.__doc__)


FAULTS: dict[str, Fault] = {}


def fault(
    *seen: str, strength: str = "", strengths: Sequence[float] = ()
) -> Callable[[Apply], Apply]:
    """Register a function that plants the fault of its name."""

    def register(apply: Apply) -> Apply:
        name = apply.__name__
        FAULTS[name] = Fault(name, apply, seen, strength, tuple(strengths))
        return apply

    return register


def parse(text: str) -> tuple[Fault, float]:
    """`name[:strength]` -> the fault and its strength; raises `ConfigError` naming the choices."""
    name, _, number = text.partition(":")
    if name not in FAULTS:
        raise ConfigError(f"fault={text}: choose from {', '.join(sorted(FAULTS))}")
    found = FAULTS[name]
    if not number:
        return found, found.strengths[0] if found.strengths else 1.0
    if not found.strengths:
        raise ConfigError(f"fault={text}: {name} has no strength; use fault={name}")
    try:
        return found, float(number)
    except ValueError:
        raise ConfigError(
            f"fault={text}: the strength is a number ({found.strength}); "
            f"use fault={name}:{found.strengths[0]:g}"
        ) from None


for _kind in KINDS:
    importlib.import_module(f"sft.faults.{_kind}")
