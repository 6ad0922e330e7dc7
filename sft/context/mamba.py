"""Mamba2's scan (nemotron_h) over packed and shared sequences.

A rank scans the whole sequence with its share of the heads, and the state starts anew with each
document. The scan is arXiv:2405.21060's, computed in chunks. The fused kernel that takes the
layer from its projection to its output has no place for an exchange, so it is not used.
"""

# ruff: noqa: N803, N806 - A, B, C, D as the paper and transformers name them
from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sft.context.exchange import sequence_for_heads
from sft.context.recurrence import (
    decay_between,
    decay_from_chunk_before,
    documents_in_chunks,
    from_chunks,
    heads_like,
    in_chunks,
    whole_sequence,
)
from sft.context.replace import replace
from sft.context.sequence import Sequence


def install(modeling: ModuleType) -> list[str]:
    """Replace the scan of mamba2 layers, and the fused kernel that would go around it."""
    return [
        *replace(modeling, "mamba2_chunk_scan", mamba2_chunk_scan),
        *replace(modeling, "mamba2_split_conv1d_scan_combined", not_fused),
    ]


def not_fused(sequence: Sequence, *args: Any, **kwargs: Any) -> None:
    """The layer takes None for an answer, and goes on by convolution and scan."""


def mamba2_chunk_scan(
    sequence: Sequence,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    **kwargs: Any,
) -> Tensor:
    """In place of transformers' `mamba2_chunk_scan`, on this rank's slice.

    hidden_states [batch, seq / n, heads, dim], dt [batch, seq / n, heads], A, D and dt_bias
    [heads], B and C [batch, seq / n, groups, state]; returns hidden_states' shape in float32.
    Raises ValueError if a cache is asked for.
    """
    if initial_states is not None or return_final_states:
        raise ValueError("a packed sequence has no one state to cache: pass use_cache=False")
    if dt_bias is not None:
        dt = dt + dt_bias.to(dt.dtype)
    dt = (F.softplus(dt) if dt_softplus else dt).clamp(*dt_limit)
    whole = whole_sequence(sequence, hidden_states, dt, B, C)
    x, step, B, C = (in_chunks(heads_like(part, whole[0]), chunk_size) for part in whole)
    log_decay = step * sequence.local(A, dim=0).to(step.dtype).view(-1, 1, 1)
    documents = documents_in_chunks(sequence.document_ids, chunk_size)
    out = from_chunks(scan(x * step.unsqueeze(-1), log_decay, B, C, documents), sequence)
    out = sequence_for_heads(out, sequence, seq_dim=1, head_dim=2)
    return out if D is None else out + D.unsqueeze(-1) * hidden_states.to(out.dtype)


def scan(x: Tensor, log_decay: Tensor, B: Tensor, C: Tensor, documents: Tensor) -> Tensor:
    """State S <- decay S + x B^T, read by C, from zero in each document.

    x [batch, heads, chunks, size, dim], log_decay without the dim, B and C with the state's,
    documents [batch, 1, chunks, size]; returns x's shape.
    """
    inside = decay_between(log_decay, documents)
    seen = decay_from_chunk_before(log_decay, documents).unsqueeze(-1)
    written = (B * inside[..., -1, :].unsqueeze(-1)).mT @ x  # by each chunk, at its end
    # a document that two chunks end in fills the chunks between, so their decays are its own
    over_chunks = decay_between(log_decay.sum(-1), documents[..., -1])
    at_end = torch.einsum("bhcz,bhznp->bhcnp", over_chunks, written)
    at_start = F.pad(at_end[:, :, :-1], (0, 0, 0, 0, 1, 0))
    return (C @ B.mT * inside) @ x + (C * seen) @ at_start
