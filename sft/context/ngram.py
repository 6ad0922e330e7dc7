"""N-gram embeddings per layer (qwen4_exp) over packed and shared sequences.

A token's n-gram looks back at the tokens before it, and a dilated convolution further still, both
across the edge of a rank's slice. Transformers starts them anew after each end-of-sequence token,
and the convolution never; here both start anew with each document.

The layer's gate is a square root, whose slope has no bound near zero: a gate of 3e-5 among the 8192
of a step turned rounding (1e-7) into 5e-4 of the embeddings' gradient norm, between layouts whose
losses agreed to 1e-7. Steps without such a gate agree to 1e-6.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sft.context.convolution import depthwise
from sft.context.replace import replace
from sft.context.sequence import Sequence


def install(modeling: ModuleType) -> list[str]:
    """Replace how n-gram layers look back at tokens, and their convolution."""
    methods: dict[str, Callable[..., Any]] = {
        "_shift_right_ignore_eos": earlier_tokens,
        "_short_conv": short_conv,
    }
    return [
        f"{cls.__name__}.{name}"
        for cls in vars(modeling).values()
        if isinstance(cls, type) and cls.__module__ == modeling.__name__
        for name in methods.keys() & vars(cls).keys()
        if replace(cls, name, methods[name])
    ]


def earlier_tokens(sequence: Sequence, layer: Any, history: Tensor, shift: int) -> Tensor:
    """In place of `_shift_right_ignore_eos`: the tokens `shift` positions earlier.

    history [batch, context + seq / n] is this rank's tokens after a context that is dropped later;
    only its shape is used, since the tokens are the whole sequence's. A token that is not of the
    same document, or before an end of sequence in it, is the end-of-sequence token.
    """
    tokens, eos = sequence.input_ids, layer.eos_token_id
    ends = torch.eq(tokens, eos).long()
    ended = ends.cumsum(-1) - ends  # before this position
    earlier = tokens
    if shift:
        same = torch.ones_like(tokens, dtype=torch.bool)
        for ids in (ended, sequence.document_ids):
            same &= F.pad(ids, (shift, 0), value=-1)[:, :-shift] == ids
        earlier = torch.where(same, F.pad(tokens, (shift, 0))[:, :-shift], eos)
    mine = sequence.local(earlier)
    return F.pad(mine, (history.shape[1] - mine.shape[1], 0))


def short_conv(sequence: Sequence, layer: Any, hidden_states: Tensor, cache: None = None) -> Tensor:
    """In place of `_short_conv`, [batch, seq / n, channels] -> the same."""
    conv = layer.conv1d
    weight, dilation = conv.weight.squeeze(1), conv.dilation[0]
    out = depthwise(hidden_states.transpose(1, 2), weight, sequence, dilation)
    return F.silu(out).transpose(1, 2)
