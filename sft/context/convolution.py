"""The short causal convolution in front of recurrent layers, over packed and shared sequences.

It stays local to a rank's slice, but for the few positions that it reads from the rank to the
left. A tap that would reach over its document's start reads zero, as at the start of a sequence.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.activations import ACT2FN

from sft.context.exchange import left_halo
from sft.context.replace import replace
from sft.context.sequence import Sequence


def install(modeling: ModuleType) -> list[str]:
    """Replace the convolution of gated delta net and mamba2 layers."""
    return replace(modeling, "causal_conv1d_fn", causal_conv1d)


def causal_conv1d(
    sequence: Sequence,
    hidden_states: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    **kwargs: Any,
) -> Tensor:
    """In place of transformers' `causal_conv1d_fn`, [batch, channels, seq / n] -> the same."""
    out = depthwise(hidden_states, weight, sequence)
    if bias is not None:
        out = out + bias.unsqueeze(-1)
    if activation is not None:
        out = ACT2FN[activation](out)
    return out.to(hidden_states.dtype)


def depthwise(x: Tensor, weight: Tensor, sequence: Sequence, dilation: int = 1) -> Tensor:
    """Causal convolution of every channel by itself, starting anew with each document.

    x [batch, channels, seq / n], weight [channels, taps]; returns x's shape in the weight's
    dtype, summed in float32 or wider. Raises `ConfigError` where a slice is shorter than the reach.
    """
    length, taps = x.shape[-1], weight.shape[-1]
    reach = (taps - 1) * dilation
    reached = torch.cat([left_halo(x, reach, sequence, dim=2), x], dim=2)
    documents = F.pad(sequence.document_ids, (reach, 0), value=-1)
    slices = documents.unfold(1, reach + length, length)
    documents = slices.index_select(1, sequence.place).squeeze(1)
    weight, dtype = weight.to(torch.promote_types(weight.dtype, torch.float32)), weight.dtype
    out = x * weight[:, -1:]
    for tap in range(taps - 1):
        at = slice(tap * dilation, tap * dilation + length)
        same = (documents[:, at] == documents[:, reach:]).unsqueeze(1)
        out = out.addcmul(reached[:, :, at] * same, weight[:, tap, None])
    return out.to(dtype)
