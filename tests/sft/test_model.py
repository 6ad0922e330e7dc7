"""A checkpoint that is not whole is never trained on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import Qwen3MoeConfig

from sft import model
from sft.config import Config, LayoutConfig, ModelConfig
from sft.errors import ConfigError


@pytest.fixture
def copied(checkpoint: Callable[[str], Path], tmp_path: Path) -> Path:
    """A checkpoint of one's own to damage; its head is tied."""
    return Path(shutil.copytree(checkpoint("llama"), tmp_path / "llama"))


def load(folder: Path) -> None:
    model.load(Config(model=ModelConfig(path=str(folder))))


def test_a_checkpoint_that_lacks_a_tensor_is_refused(copied: Path) -> None:
    load(copied)
    file = copied / "model.safetensors"
    tensors = load_file(file)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ConfigError, match=r"lacks 1 tensors of the model, as .*1\.mlp\.up_proj"):
        load(copied)


def test_a_checkpoint_that_is_cut_off_is_refused(copied: Path) -> None:
    file = copied / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"is damaged: .*; write it again"):
        load(copied)


@pytest.mark.parametrize("arch", ["qwen3", "laguna", "qwen4_exp"])
def test_a_whole_checkpoint_lacks_nothing_where_it_is_sharded(
    checkpoint: Callable[[str], Path], arch: str
) -> None:
    layout = LayoutConfig(dp_shard=2, ep=1 if arch == "qwen3" else 2)
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        loaded = model.load(Config(model=ModelConfig(path=str(checkpoint(arch))), layout=layout))
    finally:
        dist.destroy_process_group()
    assert all(isinstance(x, DTensor) for x in loaded.parameters())


@pytest.mark.parametrize(
    ("world", "ep", "said"),
    [
        (8, 1, "layout.ep=1 leaves one of 8 ranks without any of the model's 12 experts; use 4"),
        (8, 2, "layout.ep=2 leaves one of 8 ranks without any of the model's 12 experts; use 4"),
        (16, 1, "use fewer ranks"),
    ],
)
def test_a_layout_that_leaves_a_rank_without_experts_is_refused(
    tmp_path: Path, world: int, ep: int, said: str
) -> None:
    """transformers stacks a rank's experts, of which there must be some."""
    one_by_one = {"model.layers.0.mlp.experts.0.up_proj.weight": torch.ones(1)}
    save_file(one_by_one, tmp_path / "x.safetensors")
    config = Qwen3MoeConfig(num_experts=12)
    with pytest.raises(ConfigError, match=re.escape(said)):
        model.check_holders(config, LayoutConfig(dp_shard=world, ep=ep), tmp_path)
    model.check_holders(config, LayoutConfig(dp_shard=8, ep=4), tmp_path)


def test_experts_that_a_checkpoint_has_stacked_may_be_fewer_than_ranks(tmp_path: Path) -> None:
    stacked = {"model.layers.0.mlp.experts.gate_up_proj": torch.ones(1)}
    save_file(stacked, tmp_path / "x.safetensors")
    model.check_holders(Qwen3MoeConfig(num_experts=12), LayoutConfig(dp_shard=8), tmp_path)
