"""A checkpoint that is not whole is never trained on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from sft import model
from sft.config import Config, ModelConfig
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
