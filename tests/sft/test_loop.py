"""Steps that are not like the others: nothing to train on, documents one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from sft.config import Config, DataConfig, LayoutConfig, MemoryConfig, ModelConfig
from sft.data import IGNORED, Row
from sft.loop import Trainer
from sft.ranks import Ranks
from sft.report.metrics import Record

Checkpoint = Callable[[str], Path]
ALONE = Ranks(0, 1, torch.device("cpu"))
SEQ = 64


def trainer(checkpoint: Checkpoint, arch: str, packed: bool = True) -> Trainer:
    data = DataConfig(seq_len=SEQ, global_batch=1, packed=packed)
    return Trainer(Config(model=ModelConfig(str(checkpoint(arch))), data=data), ALONE)


def row_of(*lengths: int) -> Row:
    """[1, seq] documents of these lengths, every token but their last trained on."""
    labels = [
        torch.arange(n).roll(-1).index_fill(0, torch.tensor([n - 1]), IGNORED) for n in lengths
    ]
    positions = torch.cat([torch.arange(n) for n in lengths])
    return {
        "input_ids": positions[None] + 5,
        "labels": torch.cat(labels)[None],
        "position_ids": positions[None],
        "padding": torch.zeros_like(positions[None], dtype=torch.bool),
    }


@pytest.mark.usefixtures("one_thread")
def test_a_batch_that_trains_on_no_token_has_no_loss_and_moves_nothing(
    checkpoint: Checkpoint,
) -> None:
    llama, row = trainer(checkpoint, "llama"), row_of(SEQ)
    record = llama.train_step(row | {"labels": row["labels"] * 0 + IGNORED})
    assert (record["tokens"], record["loss"], record["grad_norm"]) == (0, 0.0, 0.0)
    assert record["params_moved"] == 0.0
    assert llama.train_step(row)["loss"] > 0, "and the model is whole"


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("arch", ["qwen3_5_dense", "qwen4_exp"])
def test_a_document_by_itself_may_be_shorter_than_a_convolution_reaches(
    checkpoint: Checkpoint, arch: str
) -> None:
    row = row_of(SEQ - 3, 2, 1)
    alone = trainer(checkpoint, arch, packed=False).train_step(row)
    packed = trainer(checkpoint, arch).train_step(row)
    assert alone["loss"] == pytest.approx(packed["loss"], rel=1e-5)


@pytest.mark.usefixtures("one_thread")
def test_micro_batches_add_up_in_float32_where_the_model_is_bfloat16(
    checkpoint: Checkpoint,
) -> None:
    path = str(checkpoint("llama"))
    data = DataConfig(seq_len=SEQ, global_batch=8)
    llama = Trainer(Config(model=ModelConfig(path, dtype="bfloat16"), data=data), ALONE)
    batch = next(iter(llama.loader))

    def gradients(rows: Row) -> list[torch.Tensor]:
        llama.optimizer.zero_grad()
        llama.accumulate(rows, torch.tensor(100.0))
        return [p.grad.float() for p in llama.model.parameters() if p.grad is not None]

    parts = [gradients({key: x[n : n + 1] for key, x in batch.items()}) for n in range(8)]
    sums = [torch.stack(part).sum(0).bfloat16().float() for part in zip(*parts, strict=True)]
    for ours, expected in zip(gradients(batch), sums, strict=True):
        differ = (ours != expected).float().mean()
        assert differ < 0.01, "float32 sums in another order, which rounds a few otherwise"


@pytest.fixture
def last_of_two(checkpoint: Checkpoint) -> Iterator[Callable[[str, Config], Record]]:
    """A step of a rank whose messages reach nobody: its figures are nonsense, its way is real."""
    for arch in ("qwen3_5_moe", "deepseek_v4"):
        checkpoint(arch)

    def step(arch: str, config: Config) -> Record:
        config.model.path = str(checkpoint(arch))
        config.data = DataConfig(seq_len=SEQ, global_batch=2)
        config.layout = LayoutConfig(dp_shard=2, ep=2)
        sharded = Trainer(config, Ranks(1, 2, torch.device("cpu"), dp_rank=1))
        return sharded.train_step(next(iter(sharded.loader)))

    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield step
    dist.destroy_process_group()


@pytest.mark.usefixtures("one_thread")
def test_experts_on_other_ranks_may_be_computed_again_in_part(
    last_of_two: Callable[[str, Config], Record],
) -> None:
    record = last_of_two("qwen3_5_moe", Config(memory=MemoryConfig(ac="selective")))
    assert record["counters"]["recomputed_layers"][0] > 0


@pytest.mark.usefixtures("one_thread")
def test_what_is_kept_in_float32_is_no_obstacle_to_sharding_in_bfloat16(
    last_of_two: Callable[[str, Config], Record],
) -> None:
    record = last_of_two("deepseek_v4", Config(model=ModelConfig(dtype="bfloat16")))
    assert record["loss"] > 0
