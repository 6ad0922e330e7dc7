"""Correction biases move against the load of their experts, whatever holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from sft.config import Config, OptimConfig
from sft.moe.balance import Balance
from sft.ranks import Ranks

RATE = 0.5
TOKENS = 300  # more than bfloat16 counts to


class Router(nn.Module):
    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.e_score_correction_bias = bias


class Experts(nn.Module):
    def forward(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return hidden * weights


def stepped(bias: Tensor) -> Tensor:
    """A bias of four experts after a step whose tokens went to the first, and one more to it."""
    mlp = nn.ModuleDict({"gate": Router(bias), "experts": Experts()})
    config = Config(optim=OptimConfig(router_bias_rate=RATE))
    balance = Balance(mlp, config, Ranks(0, 1, torch.device("cpu")))
    for tokens in (TOKENS, 1):
        chosen = torch.zeros(tokens, 1, dtype=torch.int64)
        mlp["experts"](torch.ones(tokens, 2), chosen, torch.ones(tokens, 1))
    assert [load.tolist() for load in balance.loads.values()] == [[TOKENS + 1, 0, 0, 0]]
    balance.step()
    return bias


def frozen(bias: Tensor) -> Tensor:
    return nn.Parameter(bias, requires_grad=False)


@pytest.mark.parametrize("held", [nn.Buffer, frozen])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bias_moves_against_the_load(
    held: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> None:
    bias = stepped(held(torch.zeros(4, dtype=dtype)))
    assert bias.tolist() == [-RATE, RATE, RATE, RATE]


@pytest.fixture
def last_of_two() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("last_of_two")
def test_a_rank_moves_its_part_of_a_bias_that_is_sharded() -> None:
    mesh = init_device_mesh("cpu", (2,))
    whole = torch.tensor([10.0, 20.0, 30.0, 40.0])
    bias = distribute_tensor(whole, mesh, [Shard(0)], src_data_rank=None)
    stepped(frozen(bias))
    assert bias.to_local().tolist() == [30 + RATE, 40 + RATE]
