"""The balance of experts, against sums that one does by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from oracle import balance
from oracle.model import FirstOfEquals, biases


def test_the_loss_is_experts_times_shares_of_picks_and_scores() -> None:
    scores = torch.tensor([[3.0, 1.0], [1.0, 1.0]])
    chosen = torch.tensor([[0], [0]])
    # picks 1 and 0; scores as shares: (3/4 + 1/2) / 2 of expert 0
    assert balance.balance_loss(scores, chosen).item() == pytest.approx(2 * 1 * 0.625)


def test_evenly_loaded_experts_have_a_loss_of_one() -> None:
    scores = torch.full((4, 4), 0.3)
    assert balance.balance_loss(scores, torch.arange(4).view(4, 1)).item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "qwen3_moe"}, [0.5, 0.5]),
        ({"model_type": "glm4_moe"}, [0.7310586, 0.7310586]),
        ({"model_type": "deepseek_v4", "scoring_func": "sqrtsoftplus"}, [1.1459763, 1.1459763]),
    ],
)
def test_each_architecture_scores_as_its_paper_says(
    config: dict[str, str], expected: list[float]
) -> None:
    scores = balance.scoring(SimpleNamespace(**config))(torch.ones(2))
    assert scores.tolist() == pytest.approx(expected)


class Experts(nn.Module):
    def forward(self, states: Tensor, chosen: Tensor) -> Tensor:
        return states


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Module()
        self.gate.register_buffer("e_score_correction_bias", torch.zeros(3))
        self.experts = Experts()
        self.config = SimpleNamespace(model_type="glm4_moe")


def test_a_bias_goes_up_below_the_mean_load_and_down_above() -> None:
    layer = Layer()
    routers = balance.Routers(layer)
    layer.experts(torch.ones(4, 1), torch.tensor([[0], [0], [0], [1]]))
    for _ in range(2):  # the second time nothing was loaded
        balance.step_biases(layer, routers, 0.1)
    assert biases(layer)["experts"].tolist() == pytest.approx([-0.1, 0.1, 0.1])


def test_of_equal_scores_the_first_are_picked_and_close_ones_are_counted() -> None:
    scores = torch.tensor([1.0, 0.0, 2.0, 0.0, 0.0])
    with FirstOfEquals() as mode:
        assert torch.topk(scores, 3, sorted=False).indices.tolist() == [2, 0, 1]
        assert scores.topk(k=4, dim=-1).values.tolist() == [2.0, 1.0, 0.0, 0.0]
        assert mode.close == 0  # equal is not close: the rule decides
        torch.topk(torch.tensor([1.0, 1.0 - 1e-7, 0.0]), 1)
        assert mode.close == 1


def test_a_close_pick_is_turned_by_its_number_and_its_gradient_with_it() -> None:
    scores = torch.tensor([[3.0, 1.0], [2.0, 2.0 - 1e-6], [2.0, 2.0 - 1e-6]], requires_grad=True)
    with FirstOfEquals([1]) as mode:
        values, indices = scores.topk(1)
    assert (indices.flatten().tolist(), mode.close) == ([0, 0, 1], 2)
    values.sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert scores.grad.tolist() == [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    with FirstOfEquals([0]):
        assert torch.topk(scores.T, 1, dim=0).indices.flatten().tolist() == [0, 1, 0]


def test_different_scores_are_picked_as_torch_does() -> None:
    scores = torch.randn(7, 50, generator=torch.Generator().manual_seed(0))
    expected = torch.topk(scores, 8, dim=1)
    with FirstOfEquals():
        found = torch.topk(scores, 8, 1)
    assert torch.equal(found.values, expected.values)
    assert torch.equal(found.indices, expected.indices)
