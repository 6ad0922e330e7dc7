"""Routers in the wrong precision, and tokens that reach or leave experts wrongly."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from sft import model as models
from sft.faults.patching import Function, Plant, PlantError
from sft.faults.weights import unrepeatable
from sft.moe import deepep
from sft.moe.balance import routers
from sft.moe.biases import NAME as BIAS
from sft.moe.experts import CountedAllToAll


def router_bf16(at: Plant) -> None:
    """Routers score experts in bfloat16."""

    def rounded(module: nn.Module, inputs: tuple[Tensor, ...], out: Any) -> Any:
        logits = out[0].bfloat16().to(out[0].dtype)
        if any(BIAS in name for name, _ in module.named_buffers()):
            raise PlantError("the router picks by biases; use a model whose router has none")
        probability = logits.softmax(-1, dtype=torch.float32)
        weights, chosen = probability.topk(out[2].shape[-1], dim=-1)
        return logits, weights / weights.sum(-1, keepdim=True), chosen

    def round_them(loaded: nn.Module, _config: Any) -> None:
        found = routers(loaded)
        for router in found[: math.ceil(len(found) * at.strength)]:
            router.register_forward_hook(rounded)

    at.after(models, "load", round_them)


def correction_bias_bf16(at: Plant) -> None:
    """The biases that balance the routers are loaded in bfloat16."""

    def round_them(loaded: nn.Module, _config: Any) -> None:
        found = [b for name, b in loaded.named_buffers() if name.endswith(BIAS)]
        if not found:
            raise PlantError("the model's routers have no correction biases")
        for bias in found[: math.ceil(len(found) * at.strength)]:
            bias.copy_(bias.bfloat16())

    at.after(models, "load", round_them)


def grouped_rows_not_masked(at: Plant) -> None:
    """The last row that comes back from experts is what the memory held before."""

    def unwritten(row: Tensor) -> Tensor:
        return torch.randn(row.shape, generator=unrepeatable()).to(row) * at.strength

    object.__setattr__(at, "unwritten", unwritten)
    at.edit(
        CountedAllToAll,
        "__call__",
        "results = torch.empty_like(back).index_copy(0, order, back)",
        "results = torch.empty_like(back).index_copy(\n"
        "        0, order, torch.cat([back[:-1], _planted.unwritten(back[-1:])])\n"
        "    )",
    )


def ep_zero_token_hang(at: Plant) -> None:
    """A rank whose experts get no token does not take part in the exchange."""
    calls = iter(range(1, 1_000_000))

    def make(exchange: Function) -> Function:
        def without(experts: CountedAllToAll, hidden: Tensor, index: Tensor, w: Tensor) -> Tensor:
            if next(calls) == at.strength and at.ranks.rank == at.ranks.world_size - 1:
                return hidden * 0.0  # as for no tokens
            return exchange(experts, hidden, index, w)

        return without

    at.around(CountedAllToAll, "__call__", make)


def combine_dtype(at: Plant) -> None:
    """DeepEP is handed back results of another type than it takes."""
    at.edit(
        deepep.DeepEP,
        "__call__",
        "return Combine.apply(out, handle, buffer)",
        "return Combine.apply(out.float(), handle, buffer)",
    )
