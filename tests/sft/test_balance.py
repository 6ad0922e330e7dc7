"""Experts' balance: the loss of each router's paper, biases against their load, without padding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tiny_models
from sft import model as models
from sft.config import Config, DataConfig, ModelConfig, OptimConfig
from sft.context.sequence import Sequence, computing, document_ids
from sft.errors import ConfigError
from sft.loop import Trainer
from sft.moe import balance
from sft.moe.balance import AuxiliaryLoss, Balance
from sft.ranks import Ranks
from sft.report import counters

ALONE = Ranks(0, 1, torch.device("cpu"))
RATE = 0.5
TOKENS = 300  # more than bfloat16 counts to
MOE = [arch for arch in tiny_models.names() if arch not in {"llama", "qwen3", "qwen3_5_dense"}]
COEF = 0.01


class Router(nn.Module):
    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.e_score_correction_bias = nn.Buffer(bias)


class Experts(nn.Module):
    def forward(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return hidden * weights


def row(*lengths: int, padding: int = 0) -> Sequence:
    """Documents of these lengths, and padding, which is one more."""
    positions = torch.cat([torch.arange(n) for n in (*lengths, padding)])[None]
    is_padding = torch.arange(positions.shape[1])[None] >= sum(lengths)
    return Sequence(positions, document_ids(positions), positions, padding=is_padding)


def stepped(bias: Tensor, padding: int) -> Tensor:
    """A bias of four experts after a step: tokens go to the first, padding to the second."""
    mlp = nn.ModuleDict({"gate": Router(bias), "experts": Experts()})
    balance = Balance(mlp, Config(optim=OptimConfig(router_bias_rate=RATE)), ALONE)
    for tokens in (TOKENS, 1):
        chosen = (torch.arange(tokens + padding) >= tokens).long().unsqueeze(1)
        with computing(row(tokens, padding=padding)):
            mlp["experts"](torch.ones(len(chosen), 2), chosen, torch.ones(len(chosen), 1))
    assert [load.tolist() for load in balance.loads.values()] == [[TOKENS + 1, 0, 0, 0]]
    balance.step()
    return mlp["gate"].e_score_correction_bias


@pytest.mark.parametrize("padding", [0, 2000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_bias_moves_against_the_load_without_padding(dtype: torch.dtype, padding: int) -> None:
    bias = stepped(torch.zeros(4, dtype=dtype), padding)
    assert bias.tolist() == [-RATE, RATE, RATE, RATE]


@pytest.mark.parametrize("arch", ["glm4_moe", "minimax_m2", "laguna", "nemotron_h"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_of_a_bias_is_not_rounded_away(
    arch: str, dtype: str, checkpoint: Callable[[str], Path]
) -> None:
    config = Config(model=ModelConfig(str(checkpoint(arch)), dtype=dtype))
    config.optim.router_bias_rate = 1e-3
    config.data = DataConfig(seq_len=64, global_batch=1)
    trainer = Trainer(config, ALONE)
    (name, bias), *_ = trainer.balance.biases.items()
    before = bias.clone()
    trainer.train_step(next(iter(trainer.loader)))
    assert bias.dtype == torch.float32, name
    moves = (bias - before).abs()
    assert torch.allclose(moves[moves > 0], torch.tensor(1e-3), rtol=1e-3)
    assert len(moves[moves > 0]) > len(moves) // 2


def loss_of(score: balance.Score, logits: Tensor, chosen: Tensor, sequence: Sequence) -> float:
    counters.take()
    tokens = sequence.real.sum().float()
    weights = torch.ones(chosen.shape, requires_grad=True)
    with computing(sequence):
        AuxiliaryLoss(score, tokens, COEF)(nn.Module(), (), (logits, weights, chosen))
    taken: float = counters.take()[balance.LOSS]
    return taken


def test_the_loss_is_equation_17_of_deepseek_v3_over_each_document() -> None:
    """Written out with loops, as the paper has it, and weighted by the documents' lengths."""
    torch.manual_seed(0)
    lengths, padding, experts, top = (5, 3), 4, 6, 2
    logits = torch.randn(12, experts)
    chosen = logits.topk(top).indices
    loss, start = 0.0, 0
    for length in lengths:
        share = sum(
            experts / (top * length) * sum(i in chosen[t] for t in range(start, start + length))
            * sum(
                float(logits[t, i].sigmoid() / logits[t].sigmoid().sum())
                for t in range(start, start + length)
            ) / length
            for i in range(experts)
        )  # fmt: skip
        loss += share * length / sum(lengths)
        start += length
    ours = loss_of(torch.sigmoid, logits, chosen, row(*lengths, padding=padding))
    assert ours == pytest.approx(loss, rel=1e-5)


def test_what_padding_is_routed_to_does_not_matter() -> None:
    logits = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    other = torch.cat([logits[:8], logits[8:].flip(1) * 3])
    sequence = row(5, 3, padding=4)
    ours, theirs = (loss_of(torch.sigmoid, x, x.topk(2).indices, sequence) for x in (logits, other))
    assert ours == theirs


@pytest.mark.parametrize("arch", MOE)
def test_scores_are_those_that_a_routers_own_weights_are_made_of(
    arch: str, checkpoint: Callable[[str], Path]
) -> None:
    loaded = models.load(Config(model=ModelConfig(str(checkpoint(arch)))))
    routers = balance.choosing(loaded)
    assert routers
    for router in routers:
        bias = () if arch != "minimax_m2" else (torch.zeros(router.num_experts),)
        hidden = torch.randn(7, router.weight.shape[1]) * 9
        logits, weights, chosen = router(hidden, *bias)
        scores = balance.score_of(router)(logits.float()).gather(1, chosen)
        shares = scores / scores.sum(1, keepdim=True)
        torch.testing.assert_close(weights / weights.sum(1, keepdim=True), shares)


def test_a_router_that_looks_experts_up_has_no_choice_to_balance(
    checkpoint: Callable[[str], Path],
) -> None:
    loaded = models.load(Config(model=ModelConfig(str(checkpoint("deepseek_v4")))))
    kinds = {type(router).__name__ for router in balance.routers(loaded)}
    assert kinds == {"DeepseekV4HashRouter", "DeepseekV4TopKRouter"}
    assert {type(router).__name__ for router in balance.choosing(loaded)} == {
        "DeepseekV4TopKRouter"
    }


def test_a_router_whose_scores_are_not_known_is_refused() -> None:
    config = Config(optim=OptimConfig(aux_loss_coef=COEF))
    with pytest.raises(ConfigError, match="how Router scores experts is not known"):
        Balance(nn.ModuleDict({"gate": Router(torch.zeros(4))}), config, ALONE)


def test_the_mean_is_over_the_tokens_of_the_global_batch_without_padding(
    checkpoint: Callable[[str], Path],
) -> None:
    """A row twice has the loss of the row, and a row of padding beside it changes nothing."""
    config = Config(model=ModelConfig(str(checkpoint("qwen3_moe"))))
    config.optim.aux_loss_coef, config.data = COEF, DataConfig(seq_len=64, global_batch=2)

    def aux(*padding: bool) -> float:
        trainer = Trainer(config, ALONE)
        filled = next(iter(trainer.loader))
        filled = {key: x[:1] for key, x in filled.items()}
        rows = [filled, filled | {"padding": torch.ones_like(filled["padding"])}]
        batch = {key: torch.cat([rows[p][key] for p in padding]) for key in filled}
        return float(trainer.train_step(batch)["aux_loss"])

    assert aux(False, False) == pytest.approx(aux(False), rel=1e-6)
    assert aux(False, True) == pytest.approx(aux(False), rel=1e-6)
