"""A value lost on load shows: without any one tensor the loss changes or the load fails."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_models
from tests.nightly import representatives

Stored = Callable[[str], dict[str, torch.Tensor]]
# Whole numbers that the class computes from the configuration, and stores beside the n-gram table.
DERIVED = re.compile(r"ple_embedding\.(layer_multipliers|ngram_heads_offsets|ngram_heads_vocab)")
# The n-gram indexer loops over the queries in Python.
LENGTH = {"qwen4_exp": 56}
EXPERTS = 16


class Loader:
    """Loads variants of one checkpoint and gives their loss on the same tokens."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        self.config = AutoConfig.from_pretrained(folder)
        self.kind: Any = AutoModelForCausalLM._model_mapping[type(self.config)]
        self.ids = torch.arange(LENGTH.get(folder.name, 128)).unsqueeze(0) * 29
        self.ids %= self.config.vocab_size

    def loss(self, tensors: dict[str, torch.Tensor]) -> float:
        torch.manual_seed(0)  # as a trainer would, with the very seed of the checkpoint
        model = self.kind.from_pretrained(None, config=self.config, state_dict=dict(tensors))
        with torch.no_grad():
            out = model.eval()(input_ids=self.ids, labels=self.ids, use_cache=False)
        return float(out.loss)


def in_turn(names: list[str]) -> list[str]:
    """Every tensor, but of the experts of a layer one each: their tensors differ by number only."""
    chosen = []
    for name in names:
        expert = re.search(r"layers\.(\d+)\..*experts\.(\d+)\.", name)
        if expert is None or int(expert[2]) == 5 * int(expert[1]) % EXPERTS:
            chosen.append(name)
    return [name for name in chosen if not DERIVED.search(name)]


@pytest.mark.slow
@pytest.mark.parametrize("arch", representatives(tiny_models.names(), "llama", "qwen3_moe"))
def test_dropping_any_tensor_changes_the_loss_or_fails_the_load(
    arch: str, checkpoint: Callable[[str], Path], stored: Stored
) -> None:
    loader, tensors = Loader(checkpoint(arch)), stored(arch)
    whole = loader.loss(tensors)
    assert loader.loss(tensors) == whole
    silent = []
    for dropped in in_turn(list(tensors)):
        rest = {name: tensor for name, tensor in tensors.items() if name != dropped}
        try:
            if loader.loss(rest) == whole:
                silent.append(dropped)
        except RuntimeError:  # transformers refuses a fused tensor with a part missing
            assert "experts" in dropped or "ngram_embedding" in dropped, dropped
    assert not silent


def test_a_constant_tensor_would_be_lost_in_silence(
    checkpoint: Callable[[str], Path], stored: Stored
) -> None:
    """What the test above would see without the perturbation."""
    loader, tensors = Loader(checkpoint("llama")), dict(stored("llama"))
    norm = "model.layers.0.input_layernorm.weight"
    tensors[norm] = torch.ones_like(tensors[norm])
    rest = {name: tensor for name, tensor in tensors.items() if name != norm}
    assert loader.loss(rest) == loader.loss(tensors)
