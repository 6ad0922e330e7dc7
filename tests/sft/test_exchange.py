"""Moves between ranks: what a compiler sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


@contextmanager
def sequence_of(rank: int) -> Iterator[Sequence]:
    """One that two ranks share, as that rank sees it."""
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    try:
        yield Sequence(TOKENS, TOKENS // 3, TOKENS, dist.group.WORLD)
    finally:
        dist.destroy_process_group()


def traced(move: Move, rank: int) -> str:
    """What a rank of two computes on its slice, as code."""
    with sequence_of(rank) as sequence:
        return str(make_fx(lambda x: move(x, sequence))(torch.arange(12.0).view(1, 4, 3)).code)


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
    first, second = (traced(move, rank) for rank in (0, 1))
    assert said in first
    assert first == second


def test_a_rank_gets_its_own_slice() -> None:
    for rank in (0, 1):
        with sequence_of(rank) as sequence:
            assert torch.equal(sequence.local(TOKENS), TOKENS[:, 4 * rank : 4 * rank + 4])


@pytest.mark.slow
def test_the_gradient_of_a_slice_of_parameters_compiles() -> None:
    # docs/upstream/index-select-scalar-backward: so two GPUs died over mamba2's decays
    weight = torch.ones(4, requires_grad=True)
    with sequence_of(rank=1) as sequence:
        scaled = torch.compile(lambda x: x * sequence.local(weight, dim=0).view(-1, 1))
        scaled(torch.arange(6.0).view(2, 3)).sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == [0.0, 0.0, 3.0, 12.0]
