"""Routers' correction biases: float32 buffers, however an architecture declares them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn
from transformers import PreTrainedModel

NAME = "e_score_correction_bias"


def of(model: nn.Module) -> dict[str, Tensor]:
    """The correction bias of each layer, by the name of the layer's experts."""
    biases = {name: bias for name, bias in model.named_buffers() if name.endswith(NAME)}
    return {
        name.removesuffix(NAME).removesuffix("gate.") + "experts": bias
        for name, bias in biases.items()
    }


@contextmanager
def kept_in_float32() -> Iterator[None]:
    """Have models that are loaded meanwhile hold their correction biases as float32 buffers.

    minimax_m2 and laguna have them in the model's dtype: in bfloat16 a step of 1e-3 can be rounded
    away. laguna's are frozen parameters, which FSDP would shard, and gather in bfloat16.
    """
    register, names = nn.Module.register_parameter, PreTrainedModel._keep_in_fp32_modules_strict

    def as_buffer(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if name == NAME and parameter is not None:
            module.register_buffer(name, parameter.data)
        else:
            register(module, name, parameter)

    nn.Module.register_parameter = as_buffer  # type: ignore[method-assign, assignment]
    PreTrainedModel._keep_in_fp32_modules_strict = [NAME]
    try:
        yield
    finally:
        nn.Module.register_parameter = register  # type: ignore[method-assign]
        PreTrainedModel._keep_in_fp32_modules_strict = names
