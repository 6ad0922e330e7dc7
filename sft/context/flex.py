"""Softmax attention by torch's FlexAttention, which computes a mask in its kernel.

The masks are transformers' own functions of positions, over the whole sequence; what is kept of one
is which of its blocks are empty. Inside of a compiled layer the kernel is part of its graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import (
    AuxRequest,
    BlockMask,
    create_block_mask,
    flex_attention,
)
from transformers.masking_utils import causal_mask_function

from sft.report import counters

COUNTER = "flex_attention_calls"


def block_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Any] = causal_mask_function,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> BlockMask:
    """In transformers' mask interface: `mask_function` as the kernel takes it."""
    create = compiled(create_block_mask, torch.device(device).type)
    return create(mask_function, batch_size, None, q_length, kv_length, device)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: BlockMask,
    scaling: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """FlexAttention, with sinks as one more key of value zero.

    query [batch, heads, seq, dim], key and value with their own heads and dims, sinks [heads];
    returns [batch, heads, seq, value's dim].
    """
    out, log_sum = compiled(flex_attention, query.device.type)(
        query,
        key,
        value,
        block_mask=mask,
        scale=scaling,
        enable_gqa=is_grouped(query, key),
        return_aux=AuxRequest(lse=True),
    )
    if sinks is not None:
        # exp(lse) is the sum that the kernel divided by; the sink adds exp(sink) to it
        share = torch.sigmoid(log_sum.lse - sinks.view(1, -1, 1))
        out = (out * share.unsqueeze(-1)).to(query.dtype)
    return counters.counted(out, COUNTER)


def is_grouped(query: Tensor, key: Tensor) -> bool:
    """Whether query heads share key heads."""
    # A branch, since two sizes that the compiler has as symbols do not compare to a bool.
    if query.shape[1] == key.shape[1]:  # noqa: SIM103
        return False
    return True


def compiled(function: Callable[..., Any], device: str) -> Callable[..., Any]:
    """`function` as it is where a layer around it is compiled, or on a CPU; else by itself.

    Uncompiled it would write out all scores.
    """
    return function if torch.compiler.is_compiling() or device == "cpu" else _compiled(function)


@functools.cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function)
