"""A line of a batches file, and files of such lines."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from sweep.run import warm
from tests.sweep.waiting import until

Write = Callable[..., Path]
Torchrun = Callable[..., None]
MINUTES = 10


@pytest.fixture(scope="session")
def torchrun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Torchrun]:
    """A function that runs torchrun's ranks, forked from a process that has torch imported."""
    log = tmp_path_factory.mktemp("torchrun") / "server.log"
    server = warm.Server([sys.executable, "-P", "-m", "sft.warm.server"], os.environ, log)

    def run(ranks: int, *module: str, **environment: str) -> None:
        argv = ["python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                str(ranks), "-m", *module]  # fmt: skip
        said = log.with_name(f"{module[0]}.log")
        started = warm.Forked(server.address, argv, {**os.environ, **environment}, said)
        until(lambda: started.poll() is not None, f"{module[0]} ends", 60.0 * MINUTES)
        assert started.returncode == 0, said.read_text()[-2000:]

    yield run
    server.stop()


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
