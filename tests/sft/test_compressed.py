"""DeepSeek-V4's entries are pooled per document, and attention takes keys that have no rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as modeling

from sft.context import compressed
from sft.context.attention import ulysses_attention
from sft.context.sequence import Sequence, computing, document_ids

LENGTHS = (70, 31, 100)  # windows of 32: two and a rest, none, three and a rest
COMPRESSORS = (modeling.DeepseekV4HCACompressor, modeling.DeepseekV4CSACompressor)


@pytest.fixture(scope="module")
def config(checkpoint: Callable[[str], Path]) -> Any:
    compressed.install(modeling)
    return AutoConfig.from_pretrained(checkpoint("deepseek_v4"))


def compressor(kind: type[nn.Module], config: Any) -> nn.Module:
    torch.manual_seed(0)
    module = kind(config)
    for parameter in module.parameters():
        nn.init.normal_(parameter)  # the biases by position are empty until a model sets them
    return module


def inputs(positions: Tensor, config: Any) -> tuple[Any, ...]:
    shape, generator = positions.shape, torch.Generator().manual_seed(1)
    hidden = torch.randn(*shape, config.hidden_size, generator=generator)
    residual = torch.randn(*shape, config.q_lora_rank, generator=generator)
    return hidden, residual, positions, None, 0


@torch.no_grad()
@pytest.mark.usefixtures("first_of_equals")
@pytest.mark.parametrize("kind", COMPRESSORS)
def test_a_documents_queries_see_the_entries_that_they_see_alone(
    kind: type[nn.Module], config: Any
) -> None:
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    module, packed = compressor(kind, config), inputs(positions, config)
    with computing(Sequence(positions, document_ids(positions), positions)):
        entries, visible = module(*packed)
    for rows in torch.arange(sum(LENGTHS)).split(LENGTHS):
        hidden, residual, own_positions = (x[:, rows] for x in packed[:3])
        alone, bias = module(hidden, residual, own_positions, None, 0)  # transformers' own
        seen = visible[0, 0, rows]
        wanted = torch.zeros(len(rows), 0) if bias is None else bias[0, 0]
        assert torch.equal(seen.sum(-1), (wanted == 0).sum(-1))
        for query, own in zip(seen, wanted == 0, strict=True):
            torch.testing.assert_close(entries[0, 0, query], alone[0, 0, own])


@pytest.mark.parametrize("kind", COMPRESSORS)
def test_entries_that_no_query_sees_have_no_gradient(kind: type[nn.Module], config: Any) -> None:
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None]
    hidden, *others = inputs(positions, config)
    hidden.requires_grad_()
    with computing(Sequence(positions, document_ids(positions), positions)):
        entries, visible = compressor(kind, config)(hidden, *others)
    (entries * visible.any(2).unsqueeze(-1)).sum().backward()
    per_token = hidden.grad[0].abs().sum(-1)
    assert per_token.isfinite().all()
    assert per_token[:64].all(), "tokens of the first document's windows are pooled"
    if kind is modeling.DeepseekV4HCACompressor:
        assert not per_token[70:101].any(), "a document shorter than a window is in no entry"


@torch.no_grad()
def test_attention_over_shared_keys_is_attention_over_both_masks() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, h, n, 8, generator=generator) for h, n in ((4, 6), (1, 9)))
    tokens, entries = torch.ones(1, 1, 6, 6).tril().bool(), torch.ones(1, 1, 6, 3).tril(-2).bool()
    sinks, positions = torch.randn(4, generator=generator), torch.arange(6)[None]
    with computing(Sequence(positions, positions * 0, positions)):
        out, _ = ulysses_attention(
            nn.Module(), query, key, key, entries, 0.3, s_aux=sinks, token_mask=tokens
        )
    visible = torch.cat([tokens, entries], -1)
    scores = (query @ key.mT * 0.3).masked_fill(~visible, float("-inf"))
    scores = torch.cat([scores, sinks.view(1, 4, 1, 1).expand(1, 4, 6, 1)], -1)
    wanted = scores.softmax(-1)[..., :-1] @ key
    torch.testing.assert_close(out, wanted.transpose(1, 2))
