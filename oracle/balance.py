"""What balances experts: the auxiliary loss and the step of the routers' biases.

The loss is that of DeepSeek-V3 (arXiv:2412.19437, equations 17 to 20), for each layer and document:
L = experts * sum_i f_i P_i, where f_i is the share of the document's picks that expert i has (no
gradient), and P_i the mean over its tokens of the score of i as a share of the token's scores.
With softmax scores it is Switch Transformer's (arXiv:2101.03961, equations 4 to 6), with k picks.
The step's loss is the mean over documents, weighted by their tokens, summed over layers.

The step of a bias is that of arXiv:2408.15664: b_i += rate * sign(mean load - load_i).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oracle.model import biases

SCORES: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda logits: logits.softmax(-1),
    "sigmoid": torch.sigmoid,
    "sqrtsoftplus": lambda logits: F.softplus(logits).sqrt(),
}
SIGMOID = ("glm4_moe", "glm_moe_dsa", "minimax_m2", "laguna", "nemotron_h")
"""Architectures whose papers or code score experts by sigmoid; a config may say otherwise."""


def scoring(config: Any) -> Callable[[Tensor], Tensor]:
    """The function from a router's logits to its scores."""
    named = getattr(config, "scoring_func", None)
    return SCORES[named or ("sigmoid" if config.model_type in SIGMOID else "softmax")]


class Routers:
    """Collects what a model's routers decide while a document is computed."""

    def __init__(self, model: Any) -> None:
        self.score = scoring(model.config)
        self.losses: list[Tensor] = []
        self.loads = {
            name: torch.zeros(bias.numel(), device=bias.device)
            for name, bias in biases(model).items()
        }
        for name, module in model.named_modules():
            kind = type(module).__name__
            if "Router" in kind and "Hash" not in kind:  # a hash is no choice to balance
                module.register_forward_hook(self._add_loss)
            if name in self.loads:
                module.register_forward_pre_hook(self._counting(name))

    def forget(self) -> None:
        """Count the load of a step anew."""
        for load in self.loads.values():
            load.zero_()

    def take_loss(self) -> Tensor | None:
        """The sum over layers since the last call; None if no router was asked."""
        losses, self.losses = self.losses, []
        return torch.stack(losses).sum() if losses else None

    def _add_loss(self, _module: nn.Module, _inputs: Any, out: Any) -> None:
        logits, _, chosen = out
        self.losses.append(balance_loss(self.score(logits.float()), chosen))

    def _counting(self, name: str) -> Callable[..., None]:
        def count(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            self.loads[name] += inputs[1].flatten().bincount(minlength=len(self.loads[name]))

        return count


def balance_loss(scores: Tensor, chosen: Tensor) -> Tensor:
    """Of one document: scores [tokens, experts], chosen [tokens, k]."""
    experts = scores.shape[-1]
    picks = chosen.flatten().bincount(minlength=experts) / chosen.numel()
    shares = scores / scores.sum(-1, keepdim=True)
    return experts * (picks * shares.mean(0)).sum()


@torch.no_grad()
def step_biases(model: nn.Module, routers: Routers, rate: float) -> None:
    """Move each bias against the load of the step's tokens, and forget the load."""
    for name, bias in biases(model).items():
        load = routers.loads[name]
        bias.add_(rate * torch.sign(load.mean() - load).view_as(bias))
    routers.forget()
