"""Formulas against torch's own implementations of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from oracle import optimizer
from oracle.settings import Settings


def two_models() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    theirs = nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("max_grad_norm", [0.01, None])
def test_steps_are_those_of_torch(weight_decay: float, max_grad_norm: float | None) -> None:
    ours, theirs = two_models()
    settings = Settings(lr=1e-2, weight_decay=weight_decay, max_grad_norm=max_grad_norm)
    adamw = optimizer.AdamW(settings)
    reference = torch.optim.AdamW(theirs.parameters(), lr=1e-2, weight_decay=weight_decay)
    for step in range(5):
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        for model in (ours, theirs):
            model.zero_grad()
            model(inputs).square().sum().backward()
        norm, groups = optimizer.norms(ours, settings)
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm or float("inf"))
        assert norm == pytest.approx(expected.item(), rel=1e-6)
        assert sum(x**2 for x in groups.values()) == pytest.approx(norm**2, rel=1e-9)
        adamw.step(dict(ours.named_parameters()), 1e-2, optimizer.clip_factor(norm, settings))
        reference.step()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=2e-6, atol=1e-7)


def test_a_parameter_without_a_gradient_does_not_decay() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer.AdamW(Settings(weight_decay=1.0)).step({"weight": weight}, 0.1, 1.0)
    assert torch.equal(weight, torch.ones(2, 2))


@pytest.mark.parametrize(
    ("decay", "expected"),
    [
        ("all", {"layers.0.weight", "layers.0.bias", "norm.weight", "conv1d.weight"}),
        ("matrices", {"layers.0.weight", "conv1d.weight"}),
        ("no_norms_no_biases", {"layers.0.weight", "conv1d.weight"}),
    ],
)
def test_what_decays_is_chosen(decay: str, expected: set[str]) -> None:
    shapes = {
        "layers.0.weight": (2, 2), "layers.0.bias": (2,), "norm.weight": (2,),
        "conv1d.weight": (2, 1, 4),
    }  # fmt: skip
    settings = Settings(decay=decay)
    assert expected == {
        name
        for name, shape in shapes.items()
        if optimizer.decays(name, torch.ones(shape), settings)
    }


def test_warm_up_is_linear_from_one_or_from_zero() -> None:
    def rates(**keys: object) -> list[float]:
        settings = Settings(lr=1.0, **keys)  # type: ignore[arg-type]
        return [optimizer.learning_rate(step, settings) for step in range(1, 6)]

    assert rates() == rates(warmup="from_zero") == [1.0] * 5
    assert rates(warmup_steps=3) == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates(warmup_steps=2, warmup="from_zero") == [0.0, 0.5, 1.0, 1.0, 1.0]


def test_a_limit_of_zero_or_none_clips_nothing() -> None:
    assert optimizer.clip_factor(5.0, Settings(max_grad_norm=0.0)) == 1.0
    assert optimizer.clip_factor(5.0, Settings(max_grad_norm=None)) == 1.0
    assert optimizer.clip_factor(5.0, Settings(max_grad_norm=1.0)) == pytest.approx(0.2, rel=1e-6)


def test_a_parameter_is_in_the_first_group_that_its_name_matches() -> None:
    groups = [optimizer.group_of(name, Settings()) for name in (
        "model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.gate.weight",
        "model.layers.0.self_attn.q_norm.weight", "model.embed_tokens.weight", "lm_head.weight",
        "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.up_proj.weight",
    )]  # fmt: skip
    assert groups == ["experts", "router", "norm", "embedding", "head", "attention", "mlp"]
    assert optimizer.group_of("x", Settings(groups=[["a", "y"]])) == "other"
