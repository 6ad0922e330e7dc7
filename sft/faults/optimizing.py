"""Optimizers that do not own, or do not see, the model's parameters."""

from __future__ import annotations

import torch
from torch import nn

from sft import loop
from sft.faults.patching import Plant


def optimizer_before_sharding(at: Plant) -> None:
    """The optimizer was made before the model was sharded, and owns tensors that nobody uses."""

    def old(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            owned = group["params"]
            count = max(1, round(len(owned) * at.strength))
            old = [nn.Parameter(parameter.detach().clone()) for parameter in owned[:count]]
            group["params"] = [*old, *owned[count:]]

    at.after(loop, "make_optimizer", old)


def param_group_dropped(at: Plant) -> None:
    """Some parameters are in no group of the optimizer."""

    def drop(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups[:1]:
            group["params"] = group["params"][int(at.strength) :]

    at.after(loop, "make_optimizer", drop)
