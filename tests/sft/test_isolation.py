"""Documents packed into one row do not see each other, in any architecture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

import tiny_models
from sft import model
from sft.config import Config, ModelConfig
from sft.context.sequence import Sequence, computing, document_ids

LENGTHS = (150, 106)  # more than the nano models' windows, indexers' picks and compression
CHANGED = slice(0, LENGTHS[0])
KEPT = slice(LENGTHS[0], sum(LENGTHS))


@pytest.fixture(scope="module", params=tiny_models.names())
def loaded(request: pytest.FixtureRequest, checkpoint: Callable[[str], Path]) -> PreTrainedModel:
    return model.load(Config(model=ModelConfig(path=str(checkpoint(request.param)))))


@torch.no_grad()
def logits(loaded: PreTrainedModel, tokens: Tensor, positions: Tensor) -> Tensor:
    with computing(Sequence(positions, document_ids(positions), tokens)):
        out: Tensor = loaded(input_ids=tokens, position_ids=positions, use_cache=False).logits
    return out


def packed(loaded: PreTrainedModel) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    vocabulary = loaded.config.get_text_config().vocab_size
    tokens = torch.randint(0, vocabulary, (1, sum(LENGTHS)), generator=generator)
    return tokens, torch.cat([torch.arange(n) for n in LENGTHS])[None]


@pytest.mark.usefixtures("one_thread")
def test_a_change_in_one_document_leaves_the_next_ones_logits(loaded: PreTrainedModel) -> None:
    tokens, positions = packed(loaded)
    changed = tokens.clone()
    changed[:, CHANGED] = tokens[:, CHANGED].flip(1)
    before, after = logits(loaded, tokens, positions), logits(loaded, changed, positions)
    assert (before[:, CHANGED] - after[:, CHANGED]).abs().max() > 1e-2
    assert (before[:, KEPT] - after[:, KEPT]).abs().max() < 1e-6


@pytest.mark.usefixtures("one_thread")
def test_a_packed_document_computes_what_it_computes_alone(loaded: PreTrainedModel) -> None:
    tokens, positions = packed(loaded)
    together = logits(loaded, tokens, positions)[:, KEPT]
    alone = logits(loaded, tokens[:, KEPT], positions[:, KEPT])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)
