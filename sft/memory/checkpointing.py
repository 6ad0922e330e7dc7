"""Activation checkpointing of decoder layers: all of a layer is computed again, or part of it."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)

from sft.memory import Forward
from sft.report import counters

MATMULS = frozenset({torch.ops.aten.mm.default, torch.ops.aten.addmm.default})
ATTENTION = frozenset(
    getattr(torch.ops.aten, f"_scaled_dot_product_{kernel}").default
    for kernel in (
        "flash_attention",
        "flash_attention_for_cpu",
        "efficient_attention",
        "cudnn_attention",
    )
) | {torch.ops.higher_order.flex_attention}
EXCHANGES = ("all_to_all", "all_gather", "exchange_rows")


def watched(forward: Forward) -> Forward:
    """A layer's forward that counts when it is computed again, compiled or not."""

    def computed(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        return forward(torch.ops.sft.layer_input(hidden_states), *args, **kwargs)

    return computed


def checkpointed(forward: Forward, selective: bool) -> Forward:
    """A layer's forward that keeps its input, and of its activations none or the expensive ones.

    Only the hidden states are handed over as tensors to save: masks and rotary embeddings, which
    all layers share, are kept as they are.
    """
    contexts = selective_contexts if selective else noop_context_fn

    def kept(hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        return checkpoint(
            forward, hidden_states, *args, use_reentrant=False, context_fn=contexts, **kwargs
        )

    return kept


def selective_contexts() -> tuple[Any, Any]:
    """The contexts for forward and recomputation, with counts of their own for one layer."""
    matmuls = {False: itertools.count(), True: itertools.count()}
    return create_selective_checkpoint_contexts(functools.partial(policy, matmuls))


def policy(
    matmuls: dict[bool, itertools.count[int]], ctx: Any, op: Any, *_args: Any, **_kwargs: Any
) -> CheckpointPolicy:
    """Save attention, what came from other ranks, and every second dense matrix product.

    As torchtitan does. Products of experts are not kept: transformers adds biases to them in place.
    """
    if op in MATMULS:
        saved = next(matmuls[ctx.is_recompute]) % 2 == 0
    else:
        saved = op in ATTENTION or op in exchanges()
    if saved and not ctx.is_recompute:
        counters.add("operators_kept", 1)
    return CheckpointPolicy.MUST_SAVE if saved else CheckpointPolicy.PREFER_RECOMPUTE


@functools.cache
def exchanges() -> frozenset[Any]:
    """The operators that move activations between ranks."""
    import sft.context.exchange
    import sft.moe.experts  # noqa: F401 - they define the operators

    return frozenset(getattr(torch.ops.sft, name).default for name in EXCHANGES)


@torch.library.custom_op("sft::layer_input", mutates_args=())
def _layer_input(x: Tensor) -> Tensor:
    """A copy of `x`; in backward, whoever asks for it computes its layer again."""
    if counters.recomputing():
        counters.add("recomputed_layers", 1)
    return x.clone()


counters.passes_on(_layer_input, inputs=1)
