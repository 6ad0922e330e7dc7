"""What FSDP2 keeps to itself, reached into here only: torch has no public way to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule


def parameters(model: nn.Module) -> Iterator[Any]:
    """What FSDP2 knows of each parameter that it shards, its `FSDPParam`s."""
    for module in sharded_modules(model):
        state = module._get_fsdp_state()
        # torch 2.13 allows several groups a module
        groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
        for group in filter(None, groups):
            yield from group.fsdp_params


def fetch_with(layer: nn.Module) -> None:
    """Let FSDP fetch what is sharded apart inside of a layer with the layer itself."""
    for module in sharded_modules(layer):
        if module is not layer:
            state = module._get_fsdp_state()
            state._pre_forward_hook_handle.remove()
            state._post_forward_hook_handle.remove()
            state._pre_forward_hook_handle = layer.register_forward_pre_hook(
                state._pre_forward, with_kwargs=True
            )
            state._post_forward_hook_handle = layer.register_forward_hook(state._post_forward)


def sharded_modules(model: nn.Module) -> list[Any]:
    """The modules that FSDP2 was applied to, in the model's order."""
    return [module for module in model.modules() if isinstance(module, FSDPModule)]
