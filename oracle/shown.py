"""What the oracle shows of its own steps, where somebody asks: as a trainer does (sweep_taps)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

import sweep_taps
from oracle.batches import Document
from oracle.optimizer import AdamW, decays


def rows(step: int, documents: Sequence[Document]) -> None:
    """Each document as a row of its own."""
    if not sweep_taps.is_on():
        return
    for document in documents:
        tokens, targets = torch.tensor([document.tokens]), torch.tensor([document.targets])
        positions = torch.arange(len(document.tokens)).unsqueeze(0)
        sweep_taps.batch(step, tokens, targets, positions)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters; none unless somebody asks."""
    if not sweep_taps.is_on():
        return {}
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def step(
    model: nn.Module, optimizer: AdamW, lr: float, factor: float, before: dict[str, Tensor]
) -> None:
    """The step that was just made: gradients as they were clipped, moments, options, weights."""
    if not sweep_taps.is_on():
        return
    s = optimizer.settings
    named = {name: p for name, p in model.named_parameters() if name in optimizer.moments}
    gradients = {name: p.grad * factor for name, p in named.items() if p.grad is not None}
    states, options = {}, {}
    for name, parameter in named.items():
        mean, square, count = optimizer.moments[name]
        states[name] = {"exp_avg": mean, "exp_avg_sq": square}
        decay = s.weight_decay if decays(name, parameter, s) else 0.0
        values = [lr, decay, s.beta1, s.beta2, s.epsilon, count - 1]
        options[name] = torch.tensor(values, dtype=torch.float64)
    sweep_taps.stepped(gradients, states, options, before)
