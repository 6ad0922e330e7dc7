"""Indexers, which pick the keys that a query attends to, over the whole sequence.

A rank scores its own queries against everybody's keys, and the picks are gathered: attention has
every query, with some of the heads. Indexers have no gradient.

A pick is a threshold: two scores that differ in their last digits can fall differently in another
layout. Of about 35,000 choices in five steps of a nano glm_moe_dsa, one did so between one process
and four ranks (0.4134104 and 0.4134102, each above the other once). It moved 142 of the document's
token losses, the step's loss by 1e-4, and nothing before it differed by more than 1e-6.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sft.context import choices, ties, windows
from sft.context.exchange import gather
from sft.context.replace import modeling_module, replace_forwards
from sft.context.sequence import Sequence
from sft.report import counters

Rotary = tuple[Tensor, Tensor]


def install(modeling: ModuleType) -> list[str]:
    """Replace the forward of GLM's indexer of tokens and of Qwen4's indexer of blocks."""
    return replace_forwards(
        modeling, GlmMoeDsaIndexer=token_picks, Qwen4ExpTextQSAIndexer=block_mask
    )


def counted_picks(
    picks: Tensor, sequence: Sequence, positions: Tensor, visible: Tensor, picked: Tensor
) -> Tensor:
    """`picks`, with what the queries could see counted, and what an indexer dropped of it.

    positions [batch, candidates] in their documents.
    """
    picks = choices.noted(picks, sequence, visible & picked, positions)
    picks = counters.counted_marks(picks, "indexer_keys_seen", visible)
    return counters.counted_marks(picks, "indexer_keys_dropped", visible & ~picked)


@torch.no_grad()
def token_picks(
    sequence: Sequence,
    indexer: Any,
    hidden_states: Tensor,
    q_resid: Tensor,
    position_embeddings: Rotary,
    attention_mask: Tensor,
    position_ids: Tensor,
    cache: Any = None,
) -> Tensor:
    """[batch, seq, picks] of every query; a rank scores its own queries."""
    mask = sequence.local(attention_mask)
    keys = gather(token_keys(indexer, hidden_states, position_embeddings), sequence)
    scores = token_scores(indexer, hidden_states, q_resid, position_embeddings, keys)
    scores = scores + first_of_equals(mask)
    count = min(indexer.index_topk, scores.shape[-1])
    picks = scores.topk(count, dim=-1).indices
    picked = torch.zeros_like(mask).scatter(-1, picks, True)
    kept = ties.settled(sequence, indexer, picked & mask, scores, sequence.position_ids)
    if ties.book.replayed:
        picks = torch.where(kept, scores, float("-inf")).topk(count, dim=-1).indices
    picks = counted_picks(picks.int(), sequence, sequence.position_ids, mask, kept)
    return gather(picks, sequence)


def token_keys(indexer: Any, hidden_states: Tensor, position_embeddings: Rotary) -> Tensor:
    """[batch, n, dim] of GLM's indexer, by which tokens are found."""
    keys = indexer.k_norm(indexer.wk(hidden_states)).unsqueeze(2)
    return rotated(indexer, keys, position_embeddings).squeeze(2)


def token_scores(
    indexer: Any, hidden_states: Tensor, q_resid: Tensor, rotary: Rotary, keys: Tensor
) -> Tensor:
    """[batch, n, seq] of queries for keys [batch, seq, dim], as GLM's indexer computes them."""
    queries = indexer.wq_b(q_resid).unflatten(-1, (indexer.n_heads, indexer.head_dim))
    queries = rotated(indexer, queries, rotary).float()
    by_head = (queries @ keys.mT.float().unsqueeze(1) * indexer.softmax_scale).relu()
    hidden_states = hidden_states.to(indexer.weights_proj.weight.dtype)
    weights = indexer.weights_proj(hidden_states).float() * indexer.n_heads**-0.5
    return (weights.unsqueeze(-2) @ by_head).squeeze(-2)


def rotated(indexer: Any, x: Tensor, position_embeddings: Rotary) -> Tensor:
    """x [batch, n, heads, dim], of which the first values are rotated."""
    rotate = modeling_module(indexer).apply_rotary_pos_emb_interleave
    sizes = (indexer.qk_rope_head_dim, indexer.head_dim - indexer.qk_rope_head_dim)
    first, rest = x.split(sizes, dim=-1)
    first, _ = rotate(first, first, *position_embeddings, unsqueeze_dim=2)
    return torch.cat([first, rest], dim=-1)


def first_of_equals(mask: Tensor) -> Tensor:
    """A boolean mask [batch, queries, keys] as biases that decide between keys of score zero.

    A score is zero where every head's is negative. `topk` picks any of equal ones, and another when
    the rest of the row is rounded differently. The bias is lost in scores that are not zero.
    """
    order = torch.arange(mask.shape[-1], device=mask.device, dtype=torch.float32) * -1e-30
    return torch.where(mask, order, float("-inf"))


@torch.no_grad()
def block_mask(
    sequence: Sequence,
    indexer: Any,
    hidden_states: Tensor,
    position_embeddings: Rotary,
    attention_mask: Tensor,
    cache: Any = None,
) -> Tensor:
    """[batch, 1, seq, seq] mask of the keys Qwen4's indexer picks, to be met with the causal one.

    The original loops over the queries to find each one's blocks of keys. All queries of a document
    cut the same blocks, so that one set of pooled keys serves them all.
    """
    blocks = windows.cut(sequence, indexer.compress_ratio)
    scores = block_scores(sequence, indexer, hidden_states, position_embeddings, blocks)
    positions, documents = sequence.position_ids, sequence.document_ids
    visible = blocks.visible(sequence.local(positions), sequence.local(documents))
    scores = scores.masked_fill(~visible, float("-inf"))
    picked = windows.best(scores, visible, indexer.block_topk)
    picked = ties.settled(sequence, indexer, picked, scores, blocks.positions)
    picked = gather(counted_picks(picked, sequence, blocks.positions, visible, picked), sequence)
    return tokens_of(picked, blocks, positions).unsqueeze(1)


def block_scores(
    sequence: Sequence,
    indexer: Any,
    hidden_states: Tensor,
    position_embeddings: Rotary,
    blocks: windows.Windows,
) -> Tensor:
    """[batch, seq / n, blocks] scores of this rank's queries for the whole sequence's blocks."""
    rotate = modeling_module(indexer).apply_rotary_pos_emb
    heads = indexer.index_qk_proj(hidden_states).unflatten(-1, (-1, indexer.index_head_dim))
    queries, keys = heads[:, :, : indexer.index_n_heads], heads[:, :, indexer.index_n_heads]
    cos, sin = position_embeddings
    queries = rotate(indexer.q_layernorm(queries), cos=cos, sin=sin, unsqueeze_dim=2)
    pooled = blocks.tokens(gather(keys, sequence)).float().mean(2).to(keys.dtype)
    # a block's position is that of its first token
    cos, sin = (windows.take(gather(x, sequence), blocks.starts) for x in (cos, sin))
    pooled = rotate(indexer.k_layernorm(pooled).unsqueeze(1), cos=cos, sin=sin)
    scores = queries.float() @ pooled.float().mT
    return scores.relu().sum(2) / math.sqrt(indexer.index_head_dim)


def tokens_of(picked: Tensor, blocks: windows.Windows, positions: Tensor) -> Tensor:
    """Picked blocks [batch, seq, blocks] -> [batch, seq, seq] their tokens, and those in none yet.

    Right where the query may see the key at all.
    """
    closes = (positions + 1) % blocks.width == 0
    # complete blocks that end before a token: the number of its own, if that is complete
    block = (closes.cumsum(1) - closes.int()).unsqueeze(1).expand(-1, picked.shape[1], -1)
    # one column more for tokens past the row's last complete block
    in_picked = F.pad(picked, (0, 1)).gather(-1, block)
    complete = (positions + 1) // blocks.width * blocks.width
    return in_picked | (positions.unsqueeze(1) >= complete.unsqueeze(-1))
