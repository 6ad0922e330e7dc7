"""Which ranks share a sequence."""

from __future__ import annotations

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from sft.config import LayoutConfig
from sft.ranks import sharing


@pytest.mark.parametrize(
    ("rank", "cp", "shared"),
    [(3, 1, None), (1, 2, [0, 1]), (2, 2, [2, 3]), (3, 4, [0, 1, 2, 3])],
)
def test_neighbours_share_a_sequence(rank: int, cp: int, shared: list[int] | None) -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=4)
    try:
        group = sharing(LayoutConfig(dp_shard=4 // cp, cp=cp))
        assert (group and dist.get_process_group_ranks(group)) == shared
    finally:
        dist.destroy_process_group()
