"""Routers keep their close choices, or choose where scores tie as another run did.

A router's own scores and weights stay: where a choice is replayed, its weights are those that this
router gives to the experts of the other run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sft.context import ties
from sft.context.sequence import active
from sft.moe import balance
from sft.moe.biases import NAME as BIAS


def watch(model: nn.Module) -> None:
    """Number what chooses, routers and indexers, and hook the routers whose scores are known."""
    routers = [
        module for module in balance.choosing(model) if type(module).__name__ in balance.SCORES
    ]
    indexers = [module for name, module in model.named_modules() if name.endswith("indexer")]
    ties.number_all([*routers, *indexers])
    for router in routers:
        if getattr(router, "num_group", 1) == 1:  # of experts, of which some are left out before
            router.register_forward_hook(_settle)


def _settle(router: nn.Module, inputs: tuple[Any, ...], out: Any) -> Any:
    sequence = active()
    if sequence is None or sequence.places is None:
        return None
    logits, weights, chosen = out
    scores = balance.score_of(router)(logits.float())
    bias = inputs[1] if len(inputs) > 1 else getattr(router, BIAS, 0.0)
    by = scores.detach() + bias
    picked = torch.zeros_like(by, dtype=torch.bool).scatter(1, chosen, True)
    places = sequence.local(sequence.places).flatten()
    experts = torch.arange(by.shape[1], device=by.device).expand_as(by)
    number = getattr(router, ties.NUMBER)
    if not ties.book.replayed:
        kept = torch.ops.sft.keep_choices(chosen, picked, by, experts, places, number)
        return logits, weights, kept
    wanted = torch.ops.sft.replay_choices(picked, by, experts, places, number)
    other = (wanted != picked).any(1, keepdim=True)
    theirs = by.masked_fill(~wanted, float("-inf")).topk(chosen.shape[1]).indices
    chosen = torch.where(other, theirs, chosen)
    return logits, torch.where(other, weights_of(router, scores, theirs, weights), weights), chosen


def weights_of(router: nn.Module, scores: Tensor, chosen: Tensor, like: Tensor) -> Tensor:
    """[tokens, k] the weights that a router gives to these experts."""
    weights = scores.gather(1, chosen)
    if getattr(router, "norm_topk_prob", True):
        weights = weights / weights.sum(-1, keepdim=True)
    return (weights * getattr(router, "routed_scaling_factor", 1.0)).to(like.dtype)
