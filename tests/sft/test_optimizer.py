"""AdamW steps on what a rank holds, and keeps its states as torch does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from sft.config import Config, OptimConfig
from sft.optimizer import make_optimizer


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def test_a_step_on_shards_is_a_step_on_the_whole_parameter(mesh: DeviceMesh) -> None:
    values, gradient = torch.randn(2, 4, 3), torch.randn(2, 4, 3)
    whole = nn.Parameter(values.flatten(0, 1))
    reference = torch.optim.AdamW([whole], lr=1e-4, weight_decay=0.0)
    model = nn.Module()
    model.weight = nn.Parameter(DTensor.from_local(values[1], mesh, [Shard(0)]))
    optimizer = make_optimizer(model, Config())
    for _ in range(3):
        whole.grad = gradient.flatten(0, 1)
        reference.step()
        model.weight.grad = DTensor.from_local(gradient[1], mesh, [Shard(0)])
        optimizer.step()
    torch.testing.assert_close(model.weight.to_local(), whole[4:], rtol=0, atol=1e-7)
    state = optimizer.state[model.weight]
    for name in ("exp_avg", "exp_avg_sq"):
        assert isinstance(state[name], DTensor)  # a checkpoint lays it out anew
        assert state[name]._spec == torch.zeros_like(model.weight)._spec
        torch.testing.assert_close(state[name].to_local(), reference.state[whole][name][4:])


def test_what_is_frozen_is_not_in_it() -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    (group,) = make_optimizer(model, Config()).param_groups
    assert [id(parameter) for parameter in group["params"]] == [id(model.weight)]


def decayed(model: nn.Module, decay: str) -> set[str]:
    """The tensors that a step shrinks though their gradient is zero."""
    config = Config(optim=OptimConfig(lr=0.1, weight_decay=0.5, decay=decay))
    for parameter in model.parameters():
        nn.init.ones_(parameter)
        parameter.grad = torch.zeros_like(parameter)
    make_optimizer(model, config).step()
    return {name for name, p in model.named_parameters() if p.max() < 1}


def test_matrices_decay_and_norms_biases_and_vectors_only_if_asked_for() -> None:
    model = nn.ModuleDict({"proj": nn.Linear(2, 3), "q_norm": nn.RMSNorm(3)})
    model.A_log = nn.Parameter(torch.ones(3))
    model.gate_up_proj_bias = nn.Parameter(torch.ones(2, 3))  # of two experts
    assert decayed(model, "matrices") == {"proj.weight"}
    assert decayed(model, "all") == {name for name, _ in model.named_parameters()}
    (group,) = make_optimizer(model, Config(optim=OptimConfig(decay="all"))).param_groups
    assert len(group["params"]) == 5
