"""The checks, one module each, in the order in which a report names them."""

from __future__ import annotations

from collections.abc import Callable

from sweep.checks import (
    alive,
    cost,
    drift,
    exercised,
    export,
    finite,
    graph_breaks,
    oracle,
    parity,
    resume,
)
from sweep.checks import exit as exit_check
from sweep.checks.base import Context, Finding, Outcome
from sweep.facts import Facts

Check = Callable[[Facts, Context], Finding | None]
"""None: the check does not apply to the case."""

CHECKS: dict[str, Check] = {
    "exit": exit_check.check,
    "finite": finite.check,
    "alive": alive.check,
    "exercised": exercised.check,
    "resume": resume.check,
    "parity": parity.check,
    "oracle": oracle.check,
    "export": export.check,
    "graph_breaks": graph_breaks.check,
    "drift": drift.check,
    "cost": cost.check,
}

__all__ = ["CHECKS", "Check", "Context", "Finding", "Outcome"]
