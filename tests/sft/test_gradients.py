"""The digest of a gradient tells a repeat from what is nearly one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sft.ranks import Ranks
from sft.report import bits, gradients

CPU = torch.device("cpu")


def digest(*grads: Tensor) -> str:
    parameters = []
    for grad in grads:
        parameters.append(nn.Parameter(torch.zeros_like(grad)))
        parameters[-1].grad = grad
    return gradients.digest(parameters, CPU)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_bit_shows_that_no_norm_shows(dtype: torch.dtype) -> None:
    gradient = torch.randn(64, 33, generator=torch.Generator().manual_seed(0)).to(dtype)
    other = gradient.clone()
    smallest = other.abs().argmin()
    value = other.view(-1)[smallest]
    other.view(-1)[smallest] = torch.nextafter(value, value * 2)
    assert gradient.float().norm() == other.float().norm()
    assert digest(gradient) == digest(gradient.clone())
    assert digest(gradient) != digest(other)


def test_values_that_trade_places_show_and_what_has_no_gradient_does_not() -> None:
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    assert digest(one) != digest(two)
    assert digest(one, two) != digest(two, one)
    assert gradients.digest([nn.Parameter(one)], CPU) == digest()


def test_a_hash_is_the_same_in_parts() -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert bits.hashed(vector) == bits.hashed(vector, part=7)
    assert bits.hashed(vector[:0]) == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int8])
def test_moves_that_cancel_in_a_weighted_sum_are_seen(dtype: torch.dtype) -> None:
    """Adam's first step moves each value by as much, up or down."""
    before, move = torch.full((4,), 64).to(dtype), torch.tensor([1, -1, -1, 1]).to(dtype)
    assert bits.hashed(before) != bits.hashed(before + move)
    assert bits.hashed(before) == bits.hashed(before.clone())


def test_no_one_of_many_changes_is_missed() -> None:
    vector = torch.randn(500, generator=torch.Generator().manual_seed(0))
    seen = {int(bits.hashed(vector))}
    for place in range(500):
        other = vector.clone()
        other[place] = torch.nextafter(other[place], torch.tensor(9.0))
        seen.add(int(bits.hashed(other)))
    assert len(seen) == 501


def clipped(max_norm: float) -> tuple[float, float]:
    """The factor that a gradient of norm 5 is clipped by, and its norm afterwards."""
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    factor = gradients.clip([parameter], 5.0, max_norm)
    norm, _ = gradients.norms([("x", parameter)], Ranks(0, 1, CPU))
    return factor, norm


def test_a_gradient_is_clipped_to_a_norm_and_a_norm_of_0_clips_nothing() -> None:
    assert clipped(1.0) == (pytest.approx(0.2), pytest.approx(1.0))
    assert clipped(6.0) == (1.0, 5.0)
    assert clipped(0.0) == (1.0, 5.0)
