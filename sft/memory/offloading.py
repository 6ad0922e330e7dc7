"""What waits on the CPU: activations for backward, optimizer states for the next step.

Parameters and gradients as well, with FSDP2's own offloading (`full_offload`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.utils._pytree import tree_leaves
from transformers.distributed import fsdp as transformers_fsdp

from sft import fsdp
from sft.memory import Forward
from sft.report import counters
from sft.report.shards import local

CPU = torch.device("cpu")


class ActivationsOnCPU(save_on_cpu):
    """torch's `save_on_cpu` for activations: what is in `kept` storages stays where it is.

    On the CPU a copy is made as well, so that the path is run.
    """

    def __init__(self, device: torch.device, kept: set[int]) -> None:
        super().__init__(pin_memory=device != CPU, device_type=device.type)
        to_cpu, from_cpu = self.pack_hook, self.unpack_hook

        def pack(tensor: Tensor) -> Any:
            if not tensor.is_floating_point() or storage(tensor) in kept:
                return tensor.detach()
            counters.add("act_offload_bytes", tensor.nbytes)
            order = memory_order(tensor)
            tensor = tensor.permute(order)  # pinned copies are contiguous, whatever the original is
            return order, to_cpu(tensor.clone() if device == CPU else tensor)

        def unpack(packed: Any) -> Tensor:
            if isinstance(packed, Tensor):
                return packed
            order, on_cpu = packed
            return from_cpu(on_cpu).permute([order.index(dim) for dim in range(len(order))])

        self.pack_hook, self.unpack_hook = pack, unpack


def offloaded(layer: nn.Module, forward: Forward, device: torch.device) -> Forward:
    """A layer's forward whose saved activations wait on the CPU for backward.

    Weights do not, nor what all layers are given alike (masks, rotary embeddings).
    """

    def saved_on_cpu(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        kept = {storage(local(x)) for x in (*layer.parameters(), *given)}
        with ActivationsOnCPU(device, kept):
            return forward(hidden_states, *args, **kwargs)

    return saved_on_cpu


def memory_order(tensor: Tensor) -> list[int]:
    """The dimensions from the outermost in memory to the innermost."""
    strides = tensor.stride()
    return sorted(range(tensor.ndim), key=lambda dim: -strides[dim])


def storage(tensor: Tensor) -> int:
    """The address of the memory that a tensor and its views share."""
    return tensor.untyped_storage().data_ptr()


def keep_on_cpu(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Keep an optimizer's states on the CPU, but for the time of a step.

    On the CPU they are copied as well, so that the path is run.
    """

    def fetch(*_: Any) -> None:
        move_states(optimizer, device)

    def put_back(*_: Any) -> None:
        move_states(optimizer, CPU)
        count_states(optimizer)

    optimizer.register_step_pre_hook(fetch)
    optimizer.register_step_post_hook(put_back)


def move_states(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Copy every state tensor but step counts, which AdamW keeps on the CPU anyway."""
    for state in optimizer.state.values():
        for name, value in state.items():
            if name != "step":
                state[name] = value.to(device, copy=True)


def count_states(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Count the bytes of this rank's optimizer states that are on the CPU."""
    held = (local(value) for state in optimizer.state.values() for value in state.values())
    counters.add("optim_offload_bytes", sum(x.nbytes for x in held if x.device == CPU))


def count_parameters(model: nn.Module) -> None:
    """Count the bytes of this rank's parameters that FSDP keeps on the CPU."""
    fetched = {p.sharded_param for p in fsdp.parameters(model) if p.offload_to_cpu}
    shards = (local(parameter) for parameter in fetched)  # a tied weight once
    counters.add("params_on_cpu", sum(x.nbytes for x in shards if x.device == CPU))


@contextmanager
def pinned_where_possible() -> Iterator[None]:
    """Let transformers ask FSDP for pinned memory only where there is an accelerator to pin for."""
    if torch.accelerator.is_available():
        yield
        return
    original = transformers_fsdp.CPUOffloadPolicy
    transformers_fsdp.CPUOffloadPolicy = lambda: CPUOffloadPolicy(pin_memory=False)
    try:
        yield
    finally:
        transformers_fsdp.CPUOffloadPolicy = original
