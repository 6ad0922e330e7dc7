"""Moves between ranks: what a compiler sees of them."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from sft.context.exchange import left_halo
from sft.context.sequence import Sequence

TOKENS = torch.arange(8).unsqueeze(0)


def traced(rank: int) -> str:
    """What a rank of two computes to get its left neighbour's last positions, as code."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    try:
        sequence = Sequence(TOKENS, TOKENS * 0, TOKENS, dist.group.WORLD)
        trace = make_fx(lambda x: left_halo(x, 2, sequence, dim=1))
        return str(trace(torch.rand(1, 4, 3)).code)
    finally:
        dist.destroy_process_group()


def test_every_rank_compiles_the_same_graph_for_a_halo() -> None:
    # ranks with other graphs had their collectives in another order, and two GPUs waited for ever
    assert "sft.all_gather" in traced(0)
    assert traced(0) == traced(1)
