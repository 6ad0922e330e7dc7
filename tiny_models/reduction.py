"""The part of the rule that all architectures share: the fewest leading layers of every kind.

A layer has one kind for its mixer (full, sliding, linear, indexed, ...) and one for its MLP (dense,
sparse, hash, ...). The leading layers kept are the fewest in which each of them occurs; not every
pair of them need occur together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

PER_LAYER = (
    "layer_types",
    "layers_block_type",
    "mlp_layer_types",
    "indexer_types",
    "num_attention_heads_per_layer",
)
# Older spellings of per-layer lists in published files; the lists themselves replace them.
SPELLINGS = ("hybrid_override_pattern", "compress_ratios", "num_hash_layers")


def layer_kinds(config: PreTrainedConfig) -> list[set[str]]:
    """For each layer of `config`, the kinds it shows."""
    lists = _per_layer_lists(config)
    kinds = []
    for at in range(config.num_hidden_layers):
        kinds.append({f"{name}={values[at]}" for name, values in lists.items()})
        if (dense := getattr(config, "first_k_dense_replace", None)) is not None:
            kinds[at].add("mlp=dense" if at < dense else "mlp=sparse")
        if at + 1 in (getattr(config, "ple_layer_ids", None) or ()):
            kinds[at].add("per-layer embedding")
    return kinds


def fewest_leading(kinds: list[set[str]]) -> int:
    """How many leading layers show every kind that `kinds` has."""
    wanted = set().union(*kinds)
    seen: set[str] = set()
    for at, shown in enumerate(kinds):
        seen |= shown
        if seen == wanted:
            return at + 1
    return len(kinds)


def leading_layers(config: PreTrainedConfig, at_least: int) -> tuple[dict[str, Any], set[str]]:
    """Values that cut `config` to its leading layers, and the published keys they replace."""
    count = max(fewest_leading(layer_kinds(config)), at_least)
    lists = _per_layer_lists(config)
    cut: dict[str, Any] = {name: values[:count] for name, values in lists.items()}
    if "layers_block_type" not in cut:  # nemotron_h derives the count from the list
        cut["num_hidden_layers"] = count
    return cut, set(SPELLINGS) | {"num_hidden_layers"}


def same_spread(config: PreTrainedConfig, hidden_size: int) -> float:
    """Standard deviation of weights with which outputs are as large as at `config`'s width.

    With the published spread, narrow layers add next to nothing to the residual stream, and what
    goes wrong in them hardly moves the loss.
    """
    return round(config.initializer_range * math.sqrt(config.hidden_size / hidden_size), 3)


def _per_layer_lists(config: PreTrainedConfig) -> dict[str, list[Any]]:
    lists = {name: getattr(config, name, None) for name in PER_LAYER}
    aliases = getattr(config, "attribute_map", {})
    return {
        name: values
        for name, values in lists.items()
        if isinstance(values, list) and name not in aliases
    }
