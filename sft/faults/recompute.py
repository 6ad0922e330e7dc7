"""Activation checkpointing whose second pass is not the first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sft import model as models
from sft.faults.patching import Plant
from sft.faults.weights import unrepeatable
from sft.moe import balance
from sft.moe.balance import routers
from sft.report.counters import recomputing


def ac_router_noise(at: Plant) -> None:
    """Routers are noisy, and the noise is another when a layer is computed again."""
    generator = unrepeatable()

    def noisy(_router: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Any, ...] | None:
        if not recomputing():
            return None
        hidden, *rest = inputs
        noise = torch.randn(hidden.shape, generator=generator).to(hidden)
        return hidden + noise * at.strength, *rest

    def disturb(loaded: nn.Module, _config: Any) -> None:
        for router in routers(loaded):
            router.register_forward_pre_hook(noisy)

    at.after(models, "load", disturb)


def ac_counts_twice(at: Plant) -> None:
    """What routers count is counted again when a layer is computed again."""
    for count in ("count_load", "count_loss"):
        at.edit(balance, count, "if not counters.recomputing():", "if True:")
