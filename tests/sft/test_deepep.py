"""DeepEP dispatch: what our side makes of the documented `Buffer`, on one rank (it needs GPUs)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from sft.moe import deepep
from sft.report import counters

TOKENS, EXPERTS, HIDDEN = 5, 4, 3


class Buffer:
    """What DeepEP documents for a group of one: every token that has an expert goes to itself."""

    rank = 0

    def get_dispatch_layout(self, ids: Tensor, experts: int) -> tuple[Any, ...]:
        here = (ids >= 0).any(1, keepdim=True)
        return here.sum(0), None, ids.flatten().bincount(minlength=experts), here, None

    def dispatch(
        self,
        x: Tensor,
        handle: Any = None,
        topk_idx: Tensor | None = None,
        topk_weights: Tensor | None = None,
        **layout: Any,
    ) -> tuple[Any, ...]:
        return x.clone(), topk_idx, topk_weights, [], handle or "handle", None

    def combine(self, x: Tensor, handle: Any, topk_weights: Tensor | None = None) -> Any:
        assert handle == "handle"
        return x.clone(), topk_weights, None


class Experts(nn.Module):
    """Scales a token by its experts' factors and weights; one of no expert adds nothing."""

    num_experts = EXPERTS

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.linspace(1, 2, EXPERTS))

    def forward(self, x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
        factors = torch.cat([self.factors, torch.zeros(1)])[ids]
        return x * (factors * weights).sum(1, keepdim=True)


@pytest.fixture
def routed() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(TOKENS, HIDDEN, requires_grad=True)
    ids = torch.stack([torch.randperm(EXPERTS)[:2] for _ in range(TOKENS)])
    return x, ids, torch.rand(TOKENS, 2).requires_grad_()


def test_outputs_and_gradients_are_those_of_the_experts_alone(
    routed: tuple[Tensor, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deepep, "shared_buffer", lambda group, size: Buffer())
    x, ids, weights = routed
    experts = Experts()
    dispatched = deepep.DeepEP.__new__(deepep.DeepEP)  # its meshes would need a process group
    dispatched.experts_forward, dispatched.num_local_experts = experts.forward, EXPERTS
    dispatched.ep_mesh = SimpleNamespace(get_group=lambda: None, size=lambda: 1)
    trained = [x, weights, experts.factors]
    counters.take()
    results = []
    for run in (experts, dispatched):
        out = run(x, ids, weights)
        results.append([out, *torch.autograd.grad(out.square().sum(), trained)])
    torch.testing.assert_close(results[1], results[0])
    assert counters.take() == {"ep_tokens_received": 0, "ep_tokens_computed": TOKENS * 2}
