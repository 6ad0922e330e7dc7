"""A checkpoint that is not whole is never trained on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

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
