"""Gradients that are not, or wrongly, reduced over the ranks, and their norm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sft.faults.patching import Plant, PlantError
from sft.loop import Trainer
from sft.memory import apply
from sft.moe.experts import CountedAllToAll
from sft.report import gradients, shards


def ep_grad_scaled(at: Plant) -> None:
    """The gradients of experts are a factor too large, as by the ranks they are split over."""

    def scale(_loss: Tensor, trainer: Trainer, *_: Any) -> None:
        for name, parameter in trainer.model.named_parameters():
            if gradients.group_of(name) == "experts" and parameter.grad is not None:
                shards.local(parameter.grad).mul_(at.strength)

    at.after(Trainer, "accumulate", scale)


def router_grad_detached(at: Plant) -> None:
    """No gradient flows from the experts' weights into the router."""
    at.edit(
        CountedAllToAll,
        "__call__",
        "top_k_weights.unsqueeze(-1)",
        "(top_k_weights * (1 - _planted.strength)"
        " + top_k_weights.detach() * _planted.strength).unsqueeze(-1)",
    )


class OwnShareOnly:
    """In place of FSDP's reduce-scatter: a rank keeps its own gradients of the rows it holds."""

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        output_tensor.copy_(input_tensor.chunk(group.size())[group.rank()])


def grad_reduce_skipped(at: Plant) -> None:
    """The gradients of one layer are not summed over the ranks."""

    def skip(_: None, trainer: Trainer, *_rest: Any) -> None:
        layer = sharded_layer(trainer.model, int(at.strength))
        layer.set_custom_reduce_scatter(OwnShareOnly())

    at.after(Trainer, "__init__", skip)


def sharded_layer(model: nn.Module, number: int) -> Any:
    """The decoder layer of that number, from 0, which FSDP shards by itself; raises PlantError."""
    layers = apply.decoder_layers(model)
    if number >= len(layers):
        raise PlantError(f"no layer {number}: the model has {len(layers)}; use a smaller number")
    if not hasattr(layers[number], "set_custom_reduce_scatter"):
        name = type(layers[number]).__name__
        raise PlantError(f"{name} is no FSDP module of its own: use more ranks")
    return layers[number]


def expert_scores_swapped(at: Plant) -> None:
    """On one rank the experts of a token trade their weights."""
    at.edit(
        CountedAllToAll,
        "__call__",
        "    chosen = top_k_index.flatten()",
        "    if dist.get_rank() == _planted.strength:\n"
        "        top_k_weights = top_k_weights.flip(-1)\n"
        "    chosen = top_k_index.flatten()",
    )


def grad_norm_local_experts(at: Plant) -> None:
    """The gradient norm, that clipping goes by, sees this rank's experts only."""
    at.edit(
        gradients,
        "norms",
        "    ranks.sum(stacked)",
        "    experts, mine = list(squares).index('experts'), stacked.clone()\n"
        "    ranks.sum(stacked)\n"
        "    lost = (stacked - mine)[experts] * _planted.strength\n"
        "    stacked[experts] = stacked[experts] - lost",
    )


def clip_by_local_norm(at: Plant) -> None:
    """Each rank clips by the norm of its own shards; the norm that is reported is right."""
    at.edit(
        gradients,
        "clip",
        "    scale = min(",
        "    parameters = list(parameters)\n"
        "    shares = [local(p.grad).double().square().sum() for p in parameters\n"
        "              if p.grad is not None]\n"
        "    own = torch.stack(shares).sum().sqrt().item()\n"
        "    norm += (own - norm) * _planted.strength\n"
        "    scale = min(",
    )


def grad_norm_counts_replicas(at: Plant) -> None:
    """The gradient norm counts the gradients of experts once for each rank that has a copy."""
    at.edit(
        gradients,
        "norms",
        "squares[group] = squares[group] + share",
        "squares[group] = squares[group] + share * "
        "(_planted.strength if group == 'experts' else 1)",
    )
