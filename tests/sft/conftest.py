"""Nano checkpoints, and ranks forked from one server for all tests of the trainer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_models
from sft.warm import launch


@pytest.fixture(scope="session")
def checkpoint() -> object:
    """A function from an architecture's name to its nano checkpoint, built once a machine."""
    return lambda arch: tiny_models.ensure(arch, "nano", 0)


@pytest.fixture(scope="session")
def warm_ranks() -> None:
    """The server that forks ranks knows what they import."""
    launch.preload(f"transformers.models.{arch}.modeling_{arch}" for arch in PRELOADED)


PRELOADED = ("llama", "qwen3_moe", "gpt_oss")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Results of one process do not depend on how many cores a machine has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


@pytest.fixture
def first_of_equals(monkeypatch: pytest.MonkeyPatch) -> None:
    """`topk` may return any of equal scores, and a zero is a common one; ours takes the first."""

    def topk(x: torch.Tensor, k: int, dim: int = -1, **_: Any) -> Any:
        values, indices = x.sort(dim=dim, descending=True, stable=True)
        return torch.return_types.topk((values.narrow(dim, 0, k), indices.narrow(dim, 0, k)))

    monkeypatch.setattr(torch.Tensor, "topk", topk)
    monkeypatch.setattr(torch, "topk", topk)
