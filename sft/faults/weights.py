"""Weights and buffers that are lost or mixed up between a checkpoint and the model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sft import model as models
from sft.faults.patching import Plant, PlantError
from sft.loop import Trainer
from sft.report.shards import local


def experts_not_loaded(at: Plant) -> None:
    """Experts keep the weights that they were created with."""
    generator = torch.Generator().manual_seed(0)

    def create(weight: Tensor) -> Tensor:
        return torch.empty(weight.shape).normal_(0.0, 0.02, generator=generator)

    change_experts(at, create)


def experts_transposed(at: Plant) -> None:
    """The matrices of experts are read with rows for columns."""
    change_experts(at, lambda weight: weight.mT.reshape(weight.shape))


def gate_up_swapped(at: Plant) -> None:
    """The gate's and the up projection's halves of a joint matrix are swapped."""
    change_experts(at, lambda weight: weight.roll(weight.shape[1] // 2, 1), only="gate_up_proj")


@torch.no_grad()
def change_experts(at: Plant, change: Callable[[Tensor], Tensor], only: str = "proj") -> None:
    """Change this rank's first experts' matrices after a model was loaded."""

    def spoil(loaded: nn.Module, _config: Any) -> None:
        names = [n for n, p in loaded.named_parameters() if ".experts." in n and p.ndim == 3]
        chosen = [name for name in names if only in name]
        if not chosen:
            raise PlantError(f"the model has no experts' {only}")
        for name in chosen:
            weight = local(loaded.get_parameter(name)).detach()
            count = math.ceil(len(weight) * at.strength)
            weight[:count] = change(weight[:count]).to(weight)

    at.after(models, "load", spoil)


def embeddings_untied(at: Plant) -> None:
    """The head gets a copy of the embeddings that it is tied to."""

    def untie(loaded: Any, _config: Any) -> None:
        if not loaded.config.tie_word_embeddings or at.ranks.world_size > 1:
            raise PlantError("it needs a model with tied embeddings, in one process")
        loaded.lm_head.weight = nn.Parameter(loaded.lm_head.weight.detach().clone())

    at.after(models, "load", untie)


def buffers_not_initialised(at: Plant) -> None:
    """Rotary frequencies are what the memory held before."""

    def leave(loaded: nn.Module, _config: Any) -> None:
        buffers = [b for name, b in loaded.named_buffers() if name.endswith("inv_freq")]
        if not buffers:
            raise PlantError("the model has no rotary frequencies")
        for frequencies in buffers:
            count = math.ceil(len(frequencies) * at.strength)
            frequencies[:count] = torch.rand(count, generator=unrepeatable())

    at.after(models, "load", leave)


def dead_model(at: Plant) -> None:
    """The model says the same of every token."""
    at.after(Trainer, "logits", lambda logits, *_: logits * at.strength)


def unrepeatable() -> torch.Generator:
    """Numbers that are others in each run, as those in memory that nobody wrote."""
    return torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big"))
