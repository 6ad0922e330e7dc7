"""N-gram embeddings: packed documents look back no further than their own start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig
from transformers.models.qwen4_exp import modeling_qwen4_exp as modeling

from sft.context import ngram
from sft.context.sequence import computing
from tests.sft.packs import assert_same, each_alone, pack

LENGTHS = (1, 30, 2, 47, 20)


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        embedding, layer = modeling.Qwen4ExpTextNGramEmbedding, modeling.Qwen4ExpTextPLELayer
        patch.setattr(embedding, "_shift_right_ignore_eos", embedding._shift_right_ignore_eos)
        patch.setattr(layer, "_short_conv", layer._short_conv)  # put back at the end
        assert len(ngram.install(modeling)) == 2
        yield


@pytest.fixture(scope="module")
def layer(checkpoint: Callable[[str], Path]) -> Any:
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(checkpoint("qwen4_exp")).get_text_config()
    layer = modeling.Qwen4ExpTextPLELayer(config, layer_idx=1, ple_layer_index=0)
    for parameter in layer.parameters():  # torch.empty and zeros hide faults
        torch.nn.init.normal_(parameter, std=0.5)
    return layer


def tokens_of(layer: Any) -> Tensor:
    """Random tokens, an end of sequence inside and at the end of documents."""
    torch.manual_seed(1)
    tokens = torch.randint(1, layer.ple_embedding.unigram_vocab_size, (1, sum(LENGTHS)))
    tokens[:, [10, 30, 50, 51, 79]] = layer.ple_embedding.eos_token_id
    return tokens


def test_a_pack_computes_what_transformers_computes_for_each_document(layer: Any) -> None:
    tokens = tokens_of(layer)
    width = layer.hidden_size * layer.hc_count
    states = {"hidden_states": torch.randn(1, sum(LENGTHS), width, requires_grad=True)}

    with computing(pack(LENGTHS, tokens)):
        ours = layer(states["hidden_states"], tokens, None)
    theirs = each_alone(
        lambda hidden_states, input_ids: layer(hidden_states, input_ids, None),
        LENGTHS,
        1,
        states | {"input_ids": tokens},
    )
    assert_same(ours, theirs, states | dict(layer.named_parameters()), 1e-5)


def test_a_change_in_one_document_leaves_the_next_ones_embeddings(layer: Any) -> None:
    tokens = tokens_of(layer)
    second = slice(LENGTHS[0], LENGTHS[0] + LENGTHS[1])
    changed = tokens.clone()
    changed[:, second] = tokens[:, second].flip(1) + 1
    with computing(pack(LENGTHS, tokens)):
        before = layer.ple_embedding(tokens, None)
    with computing(pack(LENGTHS, changed)):
        after = layer.ple_embedding(changed, None)
    moved = (before != after).any(-1)
    assert moved[:, second].sum() > 20
    assert not moved[:, second.stop :].any()
