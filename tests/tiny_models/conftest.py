"""Nano checkpoints, each written and loaded at most once a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tiny_models

if TYPE_CHECKING:
    from torch import Tensor

Checkpoint = Callable[[str], Path]
SUITE = Path(__file__).parents[2] / "sft" / "documents" / "chats.jsonl"


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    """arch -> the folder of its nano checkpoint, seed 0."""
    root = tmp_path_factory.mktemp("nano")
    return cache(lambda arch: tiny_models.write(arch, "nano", 0, root / arch))


@pytest.fixture(scope="session")
def load(checkpoint: Checkpoint) -> Callable[[str], tuple[Any, dict[str, Any]]]:
    """arch -> its nano model and what transformers reports of the loading."""
    from transformers import AutoModelForCausalLM

    return cache(
        lambda arch: AutoModelForCausalLM.from_pretrained(
            checkpoint(arch), output_loading_info=True
        )
    )


@pytest.fixture(scope="session")
def stored(checkpoint: Checkpoint) -> Callable[[str], dict[str, Tensor]]:
    """arch -> the tensors of its nano checkpoint, by the names they have on disk."""
    from safetensors.torch import load_file

    return cache(lambda arch: load_file(checkpoint(arch) / "model.safetensors"))


@pytest.fixture(scope="session")
def suite_chats() -> list[list[dict[str, str]]]:
    """The documents that the sweep trains on."""
    return [json.loads(line)["messages"] for line in SUITE.read_text("utf-8").splitlines()]
