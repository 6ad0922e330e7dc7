"""Put the memory features of a configuration around a model and its optimizer."""

from __future__ import annotations

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from sft import fsdp
from sft.config import MemoryConfig
from sft.memory import Forward, checkpointing, compiling, offloading


def place(model: nn.Module, memory: MemoryConfig, device: torch.device) -> None:
    """Move a model to its device, or only its buffers where FSDP fetches the parameters."""
    if not memory.full_offload:
        model.to(device)
        return
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)


def to_model(model: nn.Module, memory: MemoryConfig, device: torch.device) -> None:
    """Replace the forward of each decoder layer; FSDP's hooks stay outside of it."""
    for layer in decoder_layers(model):
        # What is sharded apart inside of a layer (experts, over fewer ranks; modules of another
        # dtype) would, fetched in the middle of it, break its graph, be taken for activations, be
        # missed when it is computed again, or where its forward is not what is called.
        fsdp.fetch_with(layer)
        layer.forward = prepared(layer, memory, device)


def to_optimizer(
    optimizer: torch.optim.Optimizer, memory: MemoryConfig, device: torch.device
) -> None:
    """Let its states wait on the CPU, where that is asked for."""
    if memory.full_offload:  # then it steps there: nothing has to move
        optimizer.register_step_post_hook(offloading.count_states)
    elif memory.optim_offload:
        offloading.keep_on_cpu(optimizer, device)


def measure(model: nn.Module, memory: MemoryConfig) -> None:
    """Count what is not counted as it happens; once a step."""
    if memory.compile:
        compiling.count_graphs()
    if memory.full_offload:
        offloading.count_parameters(model)


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The layers that transformers would checkpoint."""
    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def prepared(layer: nn.Module, memory: MemoryConfig, device: torch.device) -> Forward:
    """A layer's forward with what is asked for, from the inside out.

    Full checkpointing goes around the compiled layer, which is recomputed with its random numbers.
    Selective checkpointing goes inside, since the compiler must see which operators to save.
    """
    forward: Forward = layer.forward
    if memory.ac != "none":
        forward = checkpointing.watched(forward)
    if memory.ac == "selective":
        forward = checkpointing.checkpointed(forward, selective=True)
    if memory.compile:
        forward = compiling.compiled(forward, memory, device)
    if memory.ac == "full":
        forward = checkpointing.checkpointed(forward, selective=False)
    if memory.act_offload:
        forward = offloading.offloaded(layer, forward, device)
    return forward
