"""Ranks that wait for ever, die, or draw the same numbers; steps that take too long."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch

from sft import checkpoint
from sft.faults.patching import Function, Plant
from sft.loop import Trainer


def save_rank0_only_hangs(at: Plant) -> None:
    """Only the first rank saves, and waits for the others."""
    at.edit(
        Trainer,
        "run",
        "if self.step in self.config.checkpoint.save_at:",
        "if self.step in self.config.checkpoint.save_at and self.ranks.rank == 0:",
    )


def rank_dies_at_save(at: Plant) -> None:
    """A rank is killed while it saves."""

    def die(*_: Any) -> None:
        if at.ranks.rank == at.strength:
            os.kill(os.getpid(), signal.SIGKILL)

    at.after(checkpoint, "tensors", die)


def rng_same_on_ranks(at: Plant) -> None:
    """Ranks with different tokens draw the same random numbers."""
    at.edit(Trainer, "__init__", "set_seed(config.seed + ranks.rank)", "set_seed(config.seed)")


def slow_step(at: Plant) -> None:
    """A forward pass takes a slow path, to the same result."""

    def make(logits: Function) -> Function:
        def slow(*args: Any) -> Any:
            with torch.no_grad():
                for _ in range(int(at.strength) - 1):
                    logits(*args)
            return logits(*args)

        return slow

    at.around(Trainer, "logits", make)
