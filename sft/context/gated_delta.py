"""The gated delta rule (qwen3_5, qwen4_exp) over packed and shared sequences.

A rank scans the whole sequence with its share of the heads, and the state starts anew with each
document: transformers' own function keeps documents apart only where the fla package is installed
and sequence boundaries are given. The rule is arXiv:2412.06464, computed in chunks.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sft.context import fla
from sft.context.exchange import sequence_for_heads
from sft.context.recurrence import (
    decay_between,
    decay_from_chunk_before,
    documents_in_chunks,
    from_chunks,
    heads_like,
    in_chunks,
    states_at_start,
    whole_sequence,
)
from sft.context.replace import replace
from sft.context.sequence import Sequence


def install(modeling: ModuleType) -> list[str]:
    """Replace the function that gated delta net layers call on a sequence."""
    return replace(modeling, "torch_chunk_gated_delta_rule", chunk_gated_delta_rule)


def chunk_gated_delta_rule(
    sequence: Sequence,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    chunk_size: int = 64,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """In place of transformers' `torch_chunk_gated_delta_rule`, on this rank's slice.

    query and key [batch, seq / n, key heads, dim], value [batch, seq / n, heads, dim], g (log
    decay) and beta [batch, seq / n, heads]. Raises ValueError if a cache is asked for.
    """
    if initial_state is not None or output_final_state:
        raise ValueError("a packed sequence has no one state to cache: pass use_cache=False")
    whole = whole_sequence(sequence, query, key, value, g, beta)
    if sequence.fla:
        out = fla.gated_delta_rule(*whole, l2norm=use_qk_l2norm_in_kernel)
        return sequence_for_heads(out, sequence, seq_dim=1, head_dim=2), None
    q, k, v, log_decay, beta = (in_chunks(heads_like(x, whole[2]), chunk_size) for x in whole)
    if use_qk_l2norm_in_kernel:
        q, k = l2norm(q), l2norm(k)
    documents = documents_in_chunks(sequence.document_ids, chunk_size)
    out = from_chunks(gated_delta_rule(q, k, v, log_decay, beta, documents), sequence)
    return sequence_for_heads(out.to(value.dtype), sequence, seq_dim=1, head_dim=2), None


def l2norm(x: Tensor) -> Tensor:
    """Unit length along the last dim, with the models' epsilon under the root."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


def gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    documents: Tensor,
) -> Tensor:
    """State S <- decay S (1 - beta k k^T) + beta v k^T, read by q, from zero in each document.

    query, key, value [batch, heads, chunks, size, dim], log_decay and beta without the dim,
    documents [batch, 1, chunks, size]; returns value's shape.
    """
    inside = decay_between(log_decay, documents)
    seen = decay_from_chunk_before(log_decay, documents).unsqueeze(-1)
    beta, query = beta.unsqueeze(-1), query * query.shape[-1] ** -0.5
    # what each position writes, given what the earlier ones in its chunk wrote (UT transform)
    system = (beta * key) @ key.mT * inside
    right = torch.cat([beta * value, beta * key * seen], dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    writes, corrections = solved.split([value.shape[-1], key.shape[-1]], dim=-1)
    kept = (key * inside[..., -1, :].unsqueeze(-1)).mT  # of what is written, at its chunk's end
    added, erased = (kept @ solved).split([value.shape[-1], key.shape[-1]], dim=-1)
    survives = torch.eye(key.shape[-1], dtype=key.dtype, device=key.device) * seen[..., -1:, :]
    state = states_at_start(survives - erased, added)
    attention = query @ key.mT * inside
    return (query * seen) @ state + attention @ (writes - corrections @ state)
