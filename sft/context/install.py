"""Prepare a model for sequences that are packed and shared: every layer kind it has."""

from __future__ import annotations

from transformers import PreTrainedModel

from sft.context import (
    compressed,
    convolution,
    gated_delta,
    indexer,
    mamba,
    masks,
    ngram,
    sinkhorn,
)
from sft.context.replace import modeling_module

LAYER_KINDS = (masks, convolution, gated_delta, mamba, ngram, indexer, compressed, sinkhorn)
"""Modules with `install(modeling) -> names of what was replaced`, each idempotent."""


def install(model: PreTrainedModel) -> dict[str, list[str]]:
    """Replace, in the model's modeling module, what looks beyond this rank's own tokens."""
    modeling = modeling_module(model)
    replaced = {kind.__name__.rpartition(".")[2]: kind.install(modeling) for kind in LAYER_KINDS}
    if not replaced["masks"]:
        raise RuntimeError(f"{modeling.__name__} builds no mask that can be given whole sequences")
    return replaced
