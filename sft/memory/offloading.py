"""What waits on the CPU: activations for backward, optimizer states for the next step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu

from sft import counters
from sft.gradients import local

CPU = torch.device("cpu")


class ActivationsOnCPU(save_on_cpu):
    """torch's `save_on_cpu` for activations alone: weights stay where they are.

    On the CPU a copy is made as well, so that the path is run.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(pin_memory=device != CPU, device_type=device.type)
        to_cpu, from_cpu = self.pack_hook, self.unpack_hook

        def pack(tensor: Tensor) -> Any:
            if not is_activation(tensor):
                return tensor.detach()
            counters.add("act_offload_bytes", tensor.nbytes)
            return to_cpu(tensor.clone() if device == CPU else tensor)

        def unpack(packed: Any) -> Tensor:
            return packed if isinstance(packed, Tensor) else from_cpu(packed)

        self.pack_hook, self.unpack_hook = pack, unpack


def is_activation(tensor: Tensor) -> bool:
    """Whether a saved tensor was computed from something trained, and is not a weight or its view.

    Masks and positions are not: they are small, and shared by all layers.
    """
    source = tensor._base if tensor._base is not None else tensor
    return tensor.is_floating_point() and not source.is_leaf


def offloaded(forward: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """A layer's forward whose saved activations wait on the CPU for backward."""

    def saved_on_cpu(*args: Any, **kwargs: Any) -> Any:
        with ActivationsOnCPU(device):
            return forward(*args, **kwargs)

    return saved_on_cpu


def keep_on_cpu(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep an optimizer's states on the CPU, but for the time of a step.

    On the CPU they are copied as well, so that the path is run.
    """

    def fetch(*_: Any) -> None:
        move_states(optimizer, device)

    def put_back(*_: Any) -> None:
        counters.add("optim_offload_bytes", move_states(optimizer, CPU))

    optimizer.register_step_pre_hook(fetch)
    optimizer.register_step_post_hook(put_back)


def move_states(optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Copy every state tensor but step counts to a device; returns this rank's bytes there."""
    moved = 0
    for state in optimizer.state.values():
        for name, value in state.items():
            if name != "step":  # AdamW keeps those on the CPU anyway
                state[name] = value.to(device, copy=True)
                moved += local(state[name]).nbytes * (local(state[name]).device == device)
    return moved
