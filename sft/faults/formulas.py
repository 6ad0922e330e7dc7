"""Formulas of a model that are wrong in every layout alike: its numbers, dtypes and order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sft import model as models
from sft.context import attention
from sft.faults.patching import Function, Plant, PlantError
from sft.loop import Trainer
from sft.moe.balance import routers
from sft.report.shards import local

EPSILONS = ("variance_epsilon", "eps")


def rope_base_wrong(at: Plant) -> None:
    """The base of rotary frequencies is read wrong."""

    def change(frequencies: Tensor) -> Tensor:
        exponents = torch.arange(len(frequencies)) / len(frequencies)
        return frequencies * (1 + at.strength) ** -exponents.to(frequencies)

    change_frequencies(at, change)


def rope_scaling_wrong(at: Plant) -> None:
    """Rotary frequencies are scaled by another factor."""
    change_frequencies(at, lambda frequencies: frequencies / (1 + at.strength))


def sinks_lowered(at: Plant) -> None:
    """Attention sinks count for less, or not at all."""

    def make(attend: Function) -> Function:
        def lowered(*args: Any) -> Any:
            *others, sinks = args
            if sinks is None:
                raise PlantError("the model has no attention sinks")
            return attend(*others, sinks - at.strength)

        return lowered

    at.around(attention, "attend", make)


def attention_bf16(at: Plant) -> None:
    """Attention is computed in bfloat16."""

    def make(attend: Function) -> Function:
        def rounded(query: Tensor, *rest: Any) -> Tensor:
            return through_bf16(attend(query, *rest), at.strength)

        return rounded

    at.around(attention, "attend", make)


def attention_scale_wrong(at: Plant) -> None:
    """Scores of attention are scaled by another factor than the model's."""

    def make(attend: Function) -> Function:
        return lambda query, *rest: attend(query * (1 + at.strength), *rest)

    at.around(attention, "attend", make)


def norm_epsilon_wrong(at: Plant) -> None:
    """Norms have another epsilon."""

    def change(module: nn.Module) -> bool:
        names = [name for name in EPSILONS if isinstance(getattr(module, name, None), float)]
        for name in names:
            setattr(module, name, getattr(module, name) * at.strength)
        return bool(names)

    change_modules(at, change, "norms")


def experts_permuted(at: Plant) -> None:
    """The first experts of each layer are loaded in reverse order."""

    def change(name: str, weight: Tensor) -> bool:
        if ".experts." not in name or weight.ndim < 2 or at.ranks.rank:
            return False
        count = min(int(at.strength), len(weight))
        weight[:count] = weight[:count].flip(0).clone()
        return True

    change_parameters(at, change, "experts", needed=at.ranks.rank == 0)


def router_weights_scaled(at: Plant) -> None:
    """The weights of a token's experts do not add up to what the model says."""

    def scaled(_module: nn.Module, _inputs: Any, out: Any) -> Any:
        return out[0], out[1] * (1 + at.strength), out[2]

    def hook(module: nn.Module) -> bool:
        module.register_forward_hook(scaled)
        return True

    change_modules(at, hook, "routers", of=routers)


def indexer_picks_fewer(at: Plant) -> None:
    """An indexer picks fewer keys than the model says."""

    def change(module: nn.Module) -> bool:
        names = [x for x in ("index_topk", "block_topk") if isinstance(getattr(module, x, 0), int)]
        names = [name for name in names if getattr(module, name, 0)]
        for name in names:
            count = getattr(module, name)
            setattr(module, name, max(1, count - math.ceil(count * at.strength)))
        return bool(names)

    change_modules(at, change, "indexers")


def residual_bf16(at: Plant) -> None:
    """What goes from layer to layer is rounded to bfloat16."""

    def rounded(_module: nn.Module, _inputs: Any, out: Any) -> Any:
        if isinstance(out, Tensor):
            return through_bf16(out, at.strength)
        return through_bf16(out[0], at.strength), *out[1:]

    def hook(module: nn.Module) -> bool:
        module.register_forward_hook(rounded)
        return True

    change_modules(at, hook, "layers", of=lambda loaded: list(loaded.get_decoder().layers))


def weights_through_bf16(at: Plant) -> None:
    """A checkpoint in float32 is loaded through bfloat16."""

    def change(_name: str, weight: Tensor) -> bool:
        weight.copy_(through_bf16(weight, at.strength))
        return True

    change_parameters(at, change, "parameters")


def logits_scaled(at: Plant) -> None:
    """Logits are scaled by a factor that the model does not have."""
    at.after(Trainer, "logits", lambda logits, *_: logits * (1 + at.strength))


def through_bf16(x: Tensor, share: float) -> Tensor:
    """`x` with every so many of its values rounded to bfloat16."""
    every = max(1, round(1 / share))
    chosen = torch.arange(x.numel(), device=x.device).reshape(x.shape) % every == 0
    return torch.where(chosen, x.bfloat16().to(x.dtype), x)


def change_frequencies(at: Plant, change: Callable[[Tensor], Tensor]) -> None:
    """Change every table of rotary frequencies once a model is loaded."""

    def spoil(loaded: nn.Module, _config: Any) -> None:
        tables = [b for name, b in loaded.named_buffers() if name.endswith("inv_freq")]
        if not tables:
            raise PlantError("the model has no rotary frequencies")
        for table in tables:
            table.copy_(change(table))

    at.after(models, "load", spoil)


def change_modules(
    at: Plant,
    change: Callable[[nn.Module], bool],
    what: str,
    of: Callable[[Any], list[nn.Module]] = lambda loaded: list(loaded.modules()),
) -> None:
    """Change modules once a model is loaded; one at least must say that it was."""

    def spoil(loaded: nn.Module, _config: Any) -> None:
        if not [module for module in of(loaded) if change(module)]:
            raise PlantError(f"the model has no {what}")

    at.after(models, "load", spoil)


def change_parameters(
    at: Plant, change: Callable[[str, Tensor], bool], what: str, needed: bool = True
) -> None:
    """Change what this rank holds of parameters once a model is loaded."""

    def spoil(loaded: nn.Module, _config: Any) -> None:
        with torch.no_grad():
            done = [name for name, weight in parameters(loaded) if change(name, weight)]
        if needed and not done:
            raise PlantError(f"the model has no {what}")

    at.after(models, "load", spoil)


def parameters(loaded: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """What this rank holds of each parameter."""
    return ((name, local(p).detach()) for name, p in loaded.named_parameters())
