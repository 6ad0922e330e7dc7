"""Softmax attention under context parallelism: heads exchanged for sequence (Ulysses).

Registered with transformers' `AttentionInterface`, so that it serves every model that asks the
interface, with sinks, sliding windows, few key/value heads, latent attention and indexers alike.
One process computes with the same function, without the exchange. The kernel is torch's scaled
dot product attention, or FlexAttention where the model's masks are made for that.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from sft.context import flex
from sft.context.exchange import divisible, heads_for_sequence, sequence_for_heads
from sft.context.sequence import Sequence, current

NAMES = {"sdpa": "ulysses", "flex": "ulysses_flex"}
"""`model.attention` -> transformers' `attn_implementation`; they differ in their masks."""


def register() -> None:
    """Make both names known to transformers: with boolean masks, and FlexAttention's."""
    for kernel, create_mask in (("sdpa", sdpa_mask), ("flex", flex.block_mask)):
        AttentionInterface.register(NAMES[kernel], ulysses_attention)
        AttentionMaskInterface.register(NAMES[kernel], create_mask)


def ulysses_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | BlockMask | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    s_aux: Tensor | None = None,
    indices: Tensor | None = None,
    token_mask: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend over the whole sequence with this rank's heads.

    query [batch, heads, seq / n, dim], key and value with their own heads and dims; the mask is
    [batch, 1, seq, seq] over the whole sequence, `s_aux` [heads] the sink logits, and `indices`
    [batch, seq, picks] the keys an indexer picked. Keys past this rank's tokens are the same on
    every rank; the mask is then over those, and `token_mask` over the sequence. Returns
    [batch, seq / n, heads, dim].
    """
    sequence = current()
    tokens = query.shape[2]
    query = heads_for_sequence(query, sequence, seq_dim=2, head_dim=1)
    one_tensor = value is key
    key = exchange_keys(key, tokens, sequence)
    value = key if one_tensor else exchange_keys(value, tokens, sequence)
    if s_aux is not None:
        s_aux = sequence.local(s_aux, dim=0)
    if indices is not None:
        attention_mask = keep_picks(attention_mask, indices)
    if token_mask is not None:
        assert isinstance(attention_mask, Tensor), "shared keys need a materialised mask"
        attention_mask = torch.cat([token_mask, attention_mask], dim=-1)
    if isinstance(attention_mask, BlockMask):
        out = flex.attend(query, key, value, attention_mask, scaling, s_aux)
    else:
        out = attend(query, key, value, attention_mask, scaling, dropout, s_aux)
    out = sequence_for_heads(out, sequence, seq_dim=2, head_dim=1)
    return out.transpose(1, 2).contiguous(), None


def exchange_keys(x: Tensor, tokens: int, sequence: Sequence) -> Tensor:
    """[batch, heads, seq / n + shared, dim] -> [batch, heads / n, seq + shared, dim]."""
    own, shared = divisible(x, 1, sequence).split([tokens, x.shape[2] - tokens], dim=2)
    own = heads_for_sequence(own, sequence, seq_dim=2, head_dim=1)
    return torch.cat([own, sequence.local(shared, dim=1)], dim=2) if shared.shape[2] else own


def keep_picks(mask: Tensor | BlockMask | None, indices: Tensor) -> Tensor:
    """Restrict a causal mask to the keys that an indexer picked for each query."""
    assert isinstance(mask, Tensor), "an indexer needs a materialised mask"
    picked = torch.zeros_like(mask).scatter(-1, indices.long().unsqueeze(1), True)
    return mask & picked


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    dropout: float,
    sinks: Tensor | None,
) -> Tensor:
    """Torch's scaled dot product attention, with sinks as one more key of value zero."""
    if sinks is not None:
        assert mask is not None, "sinks need a materialised mask"
        key, value = (F.pad(x, (0, 0, 0, 1)) for x in (key, value))
        mask = with_sinks(mask, sinks, query.dtype)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=mask is None,
        scale=scaling,
        enable_gqa=flex.is_grouped(query, key),
    )


def with_sinks(mask: Tensor, sinks: Tensor, dtype: torch.dtype) -> Tensor:
    """[batch, 1, queries, keys] boolean mask -> [batch, heads, queries, keys + 1] biases."""
    bias = torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    batch, heads, queries = mask.shape[0], sinks.shape[0], mask.shape[2]
    sink = sinks.to(dtype).view(1, heads, 1, 1).expand(batch, heads, queries, 1)
    return torch.cat([bias.expand(-1, heads, -1, -1), sink], dim=-1)
