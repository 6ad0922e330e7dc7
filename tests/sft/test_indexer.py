"""Qwen4's indexer picks what its loop over queries picks; what is dropped is counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig
from transformers.models.qwen4_exp import modeling_qwen4_exp

from sft.context import indexer
from sft.context.sequence import Sequence, computing, document_ids
from sft.report import counters

LENGTHS = (101, 37, 3, 115)  # none a multiple of a block, one shorter than a block


@pytest.fixture
def positions() -> Tensor:
    return torch.cat([torch.arange(length) for length in LENGTHS]).expand(2, -1)


def sequence_of(positions: Tensor) -> Sequence:
    return Sequence(positions, document_ids(positions), positions)


class Qsa:
    """One of Qwen4's indexers, with what its attention layer hands it for packed documents."""

    def __init__(self, config: Any, positions: Tensor) -> None:
        torch.manual_seed(0)
        self.indexer = modeling_qwen4_exp.Qwen4ExpTextQSAIndexer(config, layer_idx=3)
        hidden = torch.randn(*positions.shape, config.hidden_size)
        rotary = modeling_qwen4_exp.Qwen4ExpTextRotaryEmbedding(config)(hidden, positions)
        documents = document_ids(positions)
        visible = (documents.unsqueeze(1) == documents.unsqueeze(2)).tril().unsqueeze(1)
        self.visible, self.arguments = visible, (hidden, rotary, visible, None)

    def attended(self) -> Tensor:
        with torch.no_grad():
            return self.visible & self.indexer(*self.arguments)


@pytest.fixture
def qsa(checkpoint: Callable[[str], Path], positions: Tensor) -> Qsa:
    assert indexer.install(modeling_qwen4_exp) == ["Qwen4ExpTextQSAIndexer"]
    return Qsa(AutoConfig.from_pretrained(checkpoint("qwen4_exp")), positions)


@pytest.mark.usefixtures("first_of_equals")
def test_qwen4_attends_to_the_keys_that_the_loop_over_queries_picks(
    qsa: Qsa, positions: Tensor
) -> None:
    looped = qsa.attended()  # nothing is being computed: the original serves
    with computing(sequence_of(positions)):
        at_once = qsa.attended()
    assert torch.equal(at_once, looped)
    assert 0.3 < looped.sum() / qsa.visible.sum() < 0.9, "the budget must drop some keys"


def test_keys_dropped_are_counted_and_a_budget_for_all_of_them_drops_none(
    qsa: Qsa, positions: Tensor
) -> None:
    counters.take()
    dropped = []
    for budget in (qsa.indexer.block_topk, 1000):
        qsa.indexer.block_topk = budget
        with computing(sequence_of(positions)):
            qsa.attended()
        counts = counters.take()
        assert counts["indexer_keys_seen"] == sum(
            2 * ((position + 1) // 4) for length in LENGTHS for position in range(length)
        )
        dropped.append(counts["indexer_keys_dropped"])
    assert dropped[0] > 0 == dropped[1]


def test_a_sequence_shorter_than_a_block_is_attended_to_whole(
    checkpoint: Callable[[str], Path],
) -> None:
    positions = torch.arange(3)[None]
    qsa = Qsa(AutoConfig.from_pretrained(checkpoint("qwen4_exp")), positions)
    with computing(sequence_of(positions)):
        assert torch.equal(qsa.attended(), qsa.visible)
