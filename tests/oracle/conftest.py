"""A line of a batches file, and files of such lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """A function that writes a batches file of rows, each a dict, and returns its path."""

    def write_rows(*rows: dict[str, Any], name: str = "batches.jsonl") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write_rows


@pytest.fixture
def row() -> Callable[..., dict[str, Any]]:
    """A function that makes a row of step 1, of two documents of three tokens."""

    def make(**changes: Any) -> dict[str, Any]:
        made = {
            "step": 1,
            "row": "0",
            "input_ids": [5, 6, 7, 8, 9, 10],
            "labels": [6, 7, -100, -100, 10, -100],
            "position_ids": [0, 1, 2, 0, 1, 2],
        }
        return {key: x for key, x in (made | changes).items() if x is not None}

    return make


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Results of one process do not depend on how many cores a machine has."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
