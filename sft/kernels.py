"""Whether the kernels that are asked for can compute a model here."""

from __future__ import annotations

import torch

from sft.config import ModelConfig
from sft.errors import ConfigError

WRITTEN_MASKS = ("indexer", "compressed")
"""Kinds of layers (`sft/context`) that change a mask, which must be written out for that."""


def check_device(config: ModelConfig, device: torch.device) -> None:
    """Reject kernels that cannot train on a device; raises `ConfigError`."""
    if config.attention == "flex" and device.type == "cpu":
        raise ConfigError(
            "model.attention=flex: FlexAttention has no backward on a CPU; use model.attention=sdpa"
        )
    if config.linear_attention == "fla" and device.type == "cpu":
        raise ConfigError(
            "model.linear_attention=fla: its kernels need a GPU; use model.linear_attention=torch"
        )


def check_model(config: ModelConfig, model_type: str, replaced: dict[str, list[str]]) -> None:
    """Reject kernels that a model's layers, as `install` found them, cannot use; `ConfigError`."""
    if config.attention == "flex" and any(replaced[kind] for kind in WRITTEN_MASKS):
        raise ConfigError(
            f"model.attention=flex: {model_type} narrows its masks to the keys that it picks, and "
            "needs them written out; use model.attention=sdpa"
        )
    if config.linear_attention == "fla" and not replaced["gated_delta"]:
        raise ConfigError(
            f"model.linear_attention=fla: {model_type} has no gated delta net; "
            "use model.linear_attention=torch"
        )
