"""Moves between ranks: what a compiler sees of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.distributed.fake_pg import FakeStore

from sft.context.convolution import depthwise
from sft.context.exchange import left_halo
from sft.context.sequence import Sequence

TOKENS = torch.arange(8).unsqueeze(0)


Move = Callable[[Tensor, Sequence], Tensor]


def convolved(x: Tensor, sequence: Sequence) -> Tensor:
    return depthwise(x.transpose(1, 2), torch.ones(3, 2), sequence)


def traced(move: Move, rank: int) -> tuple[str, Tensor]:
    """What a rank of two computes on its slice, as code, and the result."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    try:
        sequence = Sequence(TOKENS, TOKENS // 3, TOKENS, dist.group.WORLD)
        x = torch.arange(12.0).view(1, 4, 3)
        return str(make_fx(lambda x: move(x, sequence))(x).code), move(x, sequence)
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("move", "said"),
    [
        (lambda x, sequence: left_halo(x, 2, sequence, dim=1), "sft.all_gather"),
        (lambda x, sequence: sequence.local(sequence.input_ids), "index_select"),
        (lambda x, sequence: sequence.local(x, dim=1), "index_select"),
        (convolved, "index_select"),
    ],
)
def test_every_rank_compiles_the_same_graph(move: Move, said: str) -> None:
    # ranks with other graphs had their collectives in another order, and two GPUs waited for ever
    first, second = (traced(move, rank)[0] for rank in (0, 1))
    assert said in first
    assert first == second


def test_a_rank_gets_its_own_slice() -> None:
    def own(_x: Tensor, sequence: Sequence) -> Tensor:
        return sequence.local(sequence.input_ids)

    assert torch.equal(torch.cat([traced(own, rank)[1] for rank in (0, 1)], 1), TOKENS)
