"""Start ranks from Python, forked from a server that has torch and the model code imported.

torchrun starts the same ranks from nothing, which costs more than a tiny model's training.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import torch.distributed as dist
import torch.multiprocessing as mp

PRELOAD = ("sft.preloaded", "sft.__main__")


def preload(modules: Sequence[str] = ()) -> None:
    """Import `modules`, and what every rank needs, in the server; before the first `launch`."""
    mp.get_context("forkserver").set_forkserver_preload([*PRELOAD, *modules])


def launch(config: Path, ranks: int) -> None:
    """Train as `config` says on `ranks` fresh local processes.

    Raises `torch.multiprocessing.ProcessRaisedException` with the traceback of the rank that
    failed first, or `ProcessExitedException` if one died; the others are ended.
    """
    # the parent holds the store, so that no port has to be guessed
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.start_processes(
        _rank, args=(ranks, store.port, config), nprocs=ranks, start_method="forkserver"
    )


def _rank(rank: int, world_size: int, port: int, config: Path) -> None:
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
    run(config)
