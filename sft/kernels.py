"""Whether the kernels that are asked for can compute a model here."""

from __future__ import annotations

from collections.abc import Set

from sft.config import ModelConfig
from sft.errors import UnfitError

WRITTEN_MASKS = ("indexer", "compressed")
"""Kinds of layers (`sft/context`) that change a mask, which must be written out for that."""


def check_device(config: ModelConfig, device: str) -> None:
    """Reject kernels that cannot train on a kind of device; raises `UnfitError`."""
    if config.attention == "flex" and device == "cpu":
        raise UnfitError(
            "model.attention=flex: FlexAttention has no backward on a CPU; use model.attention=sdpa"
        )
    if config.linear_attention == "fla" and device == "cpu":
        raise UnfitError(
            "model.linear_attention=fla: its kernels need a GPU; use model.linear_attention=torch"
        )


def check_model(config: ModelConfig, model_type: str, layers: Set[str]) -> None:
    """Reject kernels that a model with these kinds of layers cannot use; raises `UnfitError`."""
    if config.attention == "flex" and not layers.isdisjoint(WRITTEN_MASKS):
        raise UnfitError(
            f"model.attention=flex: {model_type} narrows its masks to the keys that it picks, and "
            "needs them written out; use model.attention=sdpa"
        )
    if config.linear_attention == "fla" and "gated_delta" not in layers:
        raise UnfitError(
            f"model.linear_attention=fla: {model_type} has no gated delta net; "
            "use model.linear_attention=torch"
        )
