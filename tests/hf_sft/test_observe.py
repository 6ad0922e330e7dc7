"""What is seen of transformers' Trainer: its batches, what moved, what was computed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments

from hf_sft.observe import LayerCounter, ObservedTrainer
from hf_sft.train import beside, collate
from sft.data import IGNORED, Row

CONFIG = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
    num_attention_heads=4,
)  # fmt: skip


def rows(count: int) -> list[Row]:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(64, (count, 8), generator=draw)
    return [
        {"input_ids": row, "labels": beside(row), "position_ids": torch.arange(8)} for row in tokens
    ]


def test_labels_of_the_next_token_are_put_beside_the_token_itself() -> None:
    assert beside(torch.tensor([11, 12, IGNORED])).tolist() == [IGNORED, 11, 12]


@pytest.mark.parametrize("checkpointing", [True, False])
def test_layers_are_counted_when_they_are_computed_again(checkpointing: bool) -> None:
    model = LlamaForCausalLM(CONFIG).train()
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    counter = LayerCounter(model)
    for _ in range(2):
        batch = collate(rows(1))
        model(**batch, use_cache=False).loss.backward()
    assert counter.take() == (6 if checkpointing else 0)
    assert counter.take() == 0


def test_each_step_is_a_line_with_its_batch(tmp_path: Path) -> None:
    arguments = TrainingArguments(
        str(tmp_path), max_steps=2, per_device_train_batch_size=1, gradient_accumulation_steps=2,
        learning_rate=1e-3, logging_steps=1, save_strategy="no", use_cpu=True, report_to=[],
        disable_tqdm=True,
    )  # fmt: skip
    ObservedTrainer(
        model=LlamaForCausalLM(CONFIG),
        args=arguments,
        train_dataset=rows(8),
        data_collator=collate,
        metrics=tmp_path / "metrics.jsonl",
    ).train()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2]
    first, second = lines
    assert first["params_moved"] == 1.0
    assert first["tokens"] == 2 * 7
    assert first["counters"] == {"params_sharded": [0], "recomputed_layers": [0]}
    assert first["params_unmoved"] == []
    assert first["global_batch_digest"] != second["global_batch_digest"]


class Unused(LlamaForCausalLM):
    """A parameter beside those that the loss depends on, and one that the optimizer forgets."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__(config)
        self.unused = torch.nn.Parameter(torch.ones(4))


def test_what_has_a_gradient_and_stays_is_named_and_what_has_none_is_no_part_of_it(
    tmp_path: Path,
) -> None:
    model = Unused(CONFIG)
    forgotten = "model.norm.weight"
    arguments = TrainingArguments(
        str(tmp_path), max_steps=1, learning_rate=1e-3, logging_steps=1, save_strategy="no",
        use_cpu=True, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    owned = [p for name, p in model.named_parameters() if name != forgotten]
    ObservedTrainer(
        model=model,
        args=arguments,
        train_dataset=rows(8),
        data_collator=collate,
        metrics=tmp_path / "metrics.jsonl",
        optimizers=(torch.optim.AdamW(owned, lr=1e-3), None),
    ).train()
    line = json.loads((tmp_path / "metrics.jsonl").read_text())
    trained = sum(1 for name, _ in model.named_parameters() if name != "unused")
    assert line["params_unmoved"] == [forgotten]
    assert line["params_moved"] == pytest.approx(1 - 1 / trained)
