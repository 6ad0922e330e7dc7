"""This process among the others: device, process group, and the ranks that share a sequence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from sft.config import LayoutConfig
from sft.errors import ConfigError


@dataclass(frozen=True)
class Ranks:
    """Ranks are laid out [dp_shard, cp], those that share a sequence next to each other."""

    rank: int
    world_size: int
    device: torch.device
    dp_rank: int = 0
    cp_group: dist.ProcessGroup | None = None

    def sum(self, value: Tensor) -> Tensor:
        """The sum over all ranks, in place."""
        if self.world_size > 1:
            dist.all_reduce(value)
        return value

    def max(self, value: Tensor) -> Tensor:
        """The largest of all ranks, elementwise, in place."""
        if self.world_size > 1:
            dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return value

    def wait(self) -> None:
        """Until every rank has come here."""
        if self.world_size > 1:
            dist.barrier()

    def gather(self, value: Any) -> list[Any]:
        """Any small object of every rank, by rank."""
        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        dist.all_gather_object(gathered, value)
        return gathered


@contextmanager
def joined(layout: LayoutConfig) -> Iterator[Ranks]:
    """Join the other ranks that torchrun started; raises `ConfigError` if their number is wrong."""
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size != layout.world_size:
        raise ConfigError(
            f"layout.dp_shard x layout.cp is {layout.world_size} but {world_size} ranks were "
            f"started; use torchrun --nproc-per-node {layout.world_size}"
        )
    device = pick_device()
    if world_size == 1:
        yield Ranks(0, 1, device)
        return
    dist.init_process_group(device_id=device if device.type == "cuda" else None)
    try:
        rank = dist.get_rank()
        yield Ranks(rank, world_size, device, rank // layout.cp, sharing(layout))
    finally:
        dist.destroy_process_group()


def sharing(layout: LayoutConfig) -> dist.ProcessGroup | None:
    """The ranks that share a sequence with this one; no group is made that nobody uses."""
    if layout.cp == 1:
        return None
    if layout.cp == layout.world_size:
        return dist.group.WORLD
    group, _ = dist.new_subgroups(layout.cp)
    return group


def pick_device() -> torch.device:
    """The accelerator of this local rank where there is one, else the CPU."""
    if not torch.accelerator.is_available():
        return torch.device("cpu")
    device = torch.device(
        torch.accelerator.current_accelerator().type,  # type: ignore[union-attr]
        int(os.environ.get("LOCAL_RANK", "0")),
    )
    torch.accelerator.set_device_index(device.index)
    return device
