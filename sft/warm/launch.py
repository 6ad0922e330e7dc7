"""Start ranks from Python, forked from a server that has torch and the model code imported.

torchrun starts the same ranks from nothing, which costs more than a tiny model's training.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.multiprocessing as mp

from sft import config
from sft.report import metrics
from sft.report.metrics import Record

PRELOAD = ("sft.warm.preloaded", "sft.__main__")


def preload(modules: Sequence[str] = ()) -> None:
    """Import `modules`, and what every rank needs, in the server; before the first `launch`."""
    mp.get_context("forkserver").set_forkserver_preload([*PRELOAD, *modules])


def launch(path: Path, ranks: int) -> None:
    """Train as the configuration file `path` says on `ranks` fresh local processes.

    Raises `torch.multiprocessing.ProcessRaisedException` with the traceback of the rank that
    failed first, or `ProcessExitedException` if one died; the others are ended.
    """
    # the parent holds the store, so that no port has to be guessed
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.start_processes(
        _rank, args=(ranks, store.port, path), nprocs=ranks, start_method="forkserver"
    )


def train(folder: Path, **keys: Any) -> list[Record]:
    """Make a folder and train in it as `keys` say (`sft/config.py` has them); returns the records.

    Raises as `launch` does.
    """
    folder.mkdir(parents=True)
    path = folder / "config.json"
    path.write_text(json.dumps(keys | {"output_dir": str(folder)}), encoding="utf-8")
    launch(path, config.load(path).layout.world_size)
    return metrics.read(folder)


def _rank(rank: int, world_size: int, port: int, path: Path) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # join the parent's store
        "OMP_NUM_THREADS": "1",
    }
    import torch

    from sft.__main__ import run

    torch.set_num_threads(1)
    run(path)
