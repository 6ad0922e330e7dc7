"""AdamW over sharded parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode

from sft.config import Config
from sft.report.shards import local


class AdamW(torch.optim.AdamW):
    """AdamW whose step computes with what this rank holds of each tensor; states stay whole ones.

    It is elementwise, so that no other rank matters. DTensor would work out the placement of each
    result, for each shape anew, which takes longer than a small model's step.
    """

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        """Fill the lists of what a step computes with: parameters, gradients, moments."""
        with ZerosOfShards():
            has_complex: bool = super()._init_group(group, *lists)
        for tensors in lists:
            tensors[:] = map(local, tensors)
        return has_complex


class ZerosOfShards(TorchFunctionMode):
    """Makes `zeros_like` of a DTensor around zeros of this rank's shard."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """What `func` returns."""
        kwargs = kwargs or {}
        if func is not torch.zeros_like or not isinstance(args[0], DTensor):
            return func(*args, **kwargs)
        like, shard = args[0], args[0].to_local()
        if shard.device.type != like.device_mesh.device_type:
            return func(*args, **kwargs)  # it waits on the host, which `from_local` would end
        return DTensor.from_local(
            func(shard, **kwargs),
            like.device_mesh,
            like.placements,
            shape=like.shape,
            stride=like.stride(),
        )


def make_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    """AdamW over what is trained; `optim.decay` says what of it decays."""
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decayed = [n for n, p in trained.items() if config.optim.decay == "all" or is_matrix(n, p)]
    groups = [(decayed, config.optim.weight_decay), (trained.keys() - decayed, 0.0)]
    return AdamW(
        [
            {"params": [p for n, p in trained.items() if n in names], "weight_decay": decay}
            for names, decay in groups
            if names
        ],
        lr=config.optim.lr,
        # one operator for all of a group; on an accelerator torch's default, `foreach`, does as
        # much
        fused=True if all(p.device.type == "cpu" for p in trained.values()) else None,
    )


def is_matrix(name: str, parameter: Tensor) -> bool:
    """Whether weights decay by default: no norm, no bias, and no vector, as a sink or `A_log`.

    By name as well, since experts' biases are a matrix, and so are V4's position biases.
    """
    return parameter.ndim > 1 and not re.search(r"norm|bias", name)
