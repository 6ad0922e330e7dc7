"""DeepSeek-V4's compressed keys over packed and shared sequences.

Its compressors pool windows of tokens into entries that later queries attend to. transformers cuts
the windows at fixed places of the row, across documents; here each document is cut from its own
first token, as if it were alone. Compression has no heads: a rank gathers what is pooled and pools
all of it, and attention appends the entries to the exchanged keys.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sft.context import ties, windows
from sft.context.exchange import gather
from sft.context.indexer import counted_picks
from sft.context.replace import modeling_module, replace_forwards
from sft.context.sequence import Sequence
from sft.context.windows import Windows

Entries = tuple[Tensor, Tensor]
"""[batch, 1, windows, dim], the same on every rank, and [batch, 1, seq, windows] who sees them."""


def install(modeling: ModuleType) -> list[str]:
    """Replace the forward of both compressors and of the attention that uses them."""
    return replace_forwards(
        modeling,
        DeepseekV4HCACompressor=heavily_compressed,
        DeepseekV4CSACompressor=compressed_sparse,
        DeepseekV4Attention=attention,
    )


def attention(
    sequence: Sequence,
    layer: Any,
    hidden_states: Tensor,
    position_embeddings: dict[str, tuple[Tensor, Tensor]],
    position_ids: Tensor,
    attention_mask: Tensor,
    cache: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The layer's own forward; the mask over tokens goes past it, to our attention function.

    It adds the compressor's columns to a mask with fewer columns than it has keys. A mask over the
    whole sequence can have more than a rank has keys, so it is given one without columns.
    """
    if layer.compressor is not None:
        kwargs["token_mask"], attention_mask = attention_mask, attention_mask[..., :0]
    own_forward = type(layer).forward.__wrapped__
    inputs = (layer, hidden_states, position_embeddings, position_ids, attention_mask)
    return own_forward(*inputs, cache=cache, **kwargs)


def heavily_compressed(
    sequence: Sequence, compressor: Any, hidden_states: Tensor, *unused: Any
) -> Entries:
    """An entry for each window, seen by all later queries of its document."""
    cut = windows.cut(sequence, compressor.compress_rate)
    entries = pool(sequence, compressor, hidden_states, cut)
    visible = cut.visible(sequence.position_ids, sequence.document_ids)
    return entries.unsqueeze(1), visible.unsqueeze(1)


def compressed_sparse(
    sequence: Sequence,
    compressor: Any,
    hidden_states: Tensor,
    q_residual: Tensor,
    position_ids: Tensor,
    *unused: Any,
) -> Entries:
    """An entry for each window and the one before, seen by the later queries that pick it."""
    cut = windows.cut(sequence, compressor.compress_rate)
    entries = pool(sequence, compressor, hidden_states, cut)
    picked = picks(sequence, compressor.indexer, hidden_states, q_residual, position_ids, cut)
    return entries.unsqueeze(1), picked.unsqueeze(1)


@torch.no_grad()
def picks(
    sequence: Sequence,
    indexer: Any,
    hidden_states: Tensor,
    q_residual: Tensor,
    position_ids: Tensor,
    cut: Windows,
) -> Tensor:
    """[batch, seq, windows] which entries each query attends to; a rank scores its own queries."""
    queries = indexer.q_b_proj(q_residual).unflatten(-1, (-1, indexer.head_dim))
    queries = rotate(indexer, queries, position_ids)
    keys = pool(sequence, indexer, hidden_states, cut)
    scores = indexer.scorer(queries, keys, hidden_states)
    positions, documents = sequence.position_ids, sequence.document_ids
    visible = cut.visible(sequence.local(positions), sequence.local(documents))
    scores = scores.masked_fill(~visible, float("-inf"))
    picked = windows.best(scores, visible, indexer.index_topk)
    picked = ties.settled(sequence, indexer, picked, scores, cut.positions)
    return gather(counted_picks(picked, sequence, cut.positions, visible, picked), sequence)


def pool(sequence: Sequence, compressor: Any, hidden_states: Tensor, cut: Windows) -> Tensor:
    """[batch, seq / n, hidden] of a rank -> [batch, windows, dim], a gated mean of each window."""
    kv = cut.tokens(gather(compressor.kv_proj(hidden_states), sequence))
    gate = cut.tokens(gather(compressor.gate_proj(hidden_states), sequence))
    gate = gate + compressor.position_bias
    if kv.shape[-1] == 2 * compressor.head_dim:
        kv, gate = with_previous(kv, gate, cut)
    weights = gate.softmax(dim=2, dtype=torch.float32).to(kv.dtype)
    entries = compressor.kv_norm((kv * weights).sum(dim=2))
    return rotate(compressor, entries.unsqueeze(2), cut.positions).squeeze(2)


def with_previous(kv: Tensor, gate: Tensor, cut: Windows) -> tuple[Tensor, Tensor]:
    """[batch, windows, width, 2 dim] -> [.., 2 width, dim]: the window before, then the window.

    A token has values for the window after it and for its own. A document's first has none before.
    """
    (kv_after, kv_own), (gate_after, gate_own) = kv.chunk(2, dim=-1), gate.chunk(2, dim=-1)
    first = (cut.positions == 0)[..., None, None]
    gate_before = gate_after.roll(1, dims=1).masked_fill(first, float("-inf"))
    kv_before = kv_after.roll(1, dims=1)
    return torch.cat([kv_before, kv_own], dim=2), torch.cat([gate_before, gate_own], dim=2)


def rotate(module: Any, x: Tensor, positions: Tensor) -> Tensor:
    """Rotary embedding of x [batch, n, heads, dim] as of its positions [batch, n]."""
    cos, sin = module.rotary_emb(x, position_ids=positions, layer_type=module.rope_layer_type)
    rotary = modeling_module(module).apply_rotary_pos_emb
    return rotary(x, cos, sin, unsqueeze_dim=2)
