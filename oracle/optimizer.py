"""Gradient norms, clipping, the schedule and AdamW, from their formulas."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from oracle.settings import Settings

NO_DECAY = r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)"
"""Names that transformers' `Trainer` leaves out of weight decay."""


def learning_rate(step: int, settings: Settings) -> float:
    """Linear warm-up, then constant; steps count from 1."""
    warmup = settings.warmup_steps
    if settings.warmup == "from_one":
        return settings.lr * min(1.0, step / (warmup + 1))
    return settings.lr * min(1.0, (step - 1) / warmup) if warmup else settings.lr


def group_of(name: str, settings: Settings) -> str:
    """The group in which a parameter's gradient norm is reported."""
    return next((group for group, p in settings.groups if re.search(p, name)), "other")


def norms(model: nn.Module, settings: Settings) -> tuple[float, dict[str, float]]:
    """The 2-norm of the gradient before clipping, in total and by group."""
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        group = group_of(name, settings)
        square = 0.0 if parameter.grad is None else parameter.grad.double().square().sum().item()
        squares[group] = squares.get(group, 0.0) + square
    total = math.sqrt(sum(squares.values()))
    return total, {group: math.sqrt(square) for group, square in squares.items()}


def clip_factor(norm: float, settings: Settings) -> float:
    """min(1, limit / norm) of arXiv:1211.5063, with torch's 1e-6 in the divisor."""
    if not settings.max_grad_norm:
        return 1.0
    return min(1.0, settings.max_grad_norm / (norm + 1e-6))


def decays(name: str, parameter: Tensor, settings: Settings) -> bool:
    """Whether weight decay applies to a parameter."""
    if settings.decay == "matrices":
        return parameter.ndim >= 2 and not re.search(r"norm|bias", name)
    return settings.decay == "all" or not re.search(NO_DECAY, name, re.IGNORECASE)


class AdamW:
    """Decoupled weight decay and Adam, algorithm 2 of arXiv:1711.05101.

    m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
    w = w - lr * (m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps) + decay * w)

    A parameter that never had a gradient is left as it is.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.moments: dict[str, tuple[Tensor, Tensor, int]] = {}

    @torch.no_grad()
    def step(self, named: Mapping[str, nn.Parameter], lr: float, factor: float) -> None:
        """One step with gradients times `factor`."""
        s = self.settings
        for name, weight in named.items():
            if weight.grad is None:
                continue
            gradient = weight.grad * factor
            zero = torch.zeros_like(weight)
            m, v, t = self.moments.get(name, (zero, zero, 0))
            t += 1
            m = s.beta1 * m + (1 - s.beta1) * gradient
            v = s.beta2 * v + (1 - s.beta2) * gradient.square()
            self.moments[name] = m, v, t
            unbiased = v / (1 - s.beta2**t)
            update = m / (1 - s.beta1**t) / (unbiased.sqrt() + s.epsilon)
            decay = s.weight_decay if decays(name, weight, s) else 0.0
            weight.sub_(lr * (update + decay * weight))
