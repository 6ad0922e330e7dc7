"""The digest of a gradient tells a repeat from what is nearly one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sft.report import gradients

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


def test_the_sum_of_bits_is_the_same_in_parts() -> None:
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert gradients.bits_of(vector) == gradients.bits_of(vector, part=7)
    assert gradients.bits_of(vector[:0]) == 0
