"""Optimizers that do not own, or do not see, the model's parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sft import loop
from sft.config import OptimConfig
from sft.faults.patching import Function, Plant, PlantError
from sft.report import gradients


def optimizer_before_sharding(at: Plant) -> None:
    """The optimizer was made before the model was sharded, and owns tensors that nobody uses."""

    def old(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            owned = group["params"]
            count = max(1, round(len(owned) * at.strength))
            old = [nn.Parameter(parameter.detach().clone()) for parameter in owned[:count]]
            group["params"] = [*old, *owned[count:]]

    at.after(loop, "make_optimizer", old)


def param_group_dropped(at: Plant) -> None:
    """Some parameters are in no group of the optimizer."""

    def drop(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups[:1]:
            group["params"] = group["params"][int(at.strength) :]

    at.after(loop, "make_optimizer", drop)


def decay_everywhere(at: Plant) -> None:
    """Weight decay applies to norms and biases as well."""

    def spread(optimizer: torch.optim.Optimizer, *_: object) -> None:
        check_decays(at.config.optim)
        for group in optimizer.param_groups:
            if not group["weight_decay"]:
                group["weight_decay"] = at.config.optim.weight_decay * at.strength

    at.after(loop, "make_optimizer", spread)


def decay_nowhere(at: Plant) -> None:
    """Matrices do not decay, or less than they should."""

    def lessen(optimizer: torch.optim.Optimizer, *_: object) -> None:
        check_decays(at.config.optim)
        for group in optimizer.param_groups:
            group["weight_decay"] *= 1 - at.strength

    at.after(loop, "make_optimizer", lessen)


def check_decays(optim: OptimConfig) -> None:
    """Refuse a run in which nothing decays."""
    if not optim.weight_decay:
        raise PlantError("optim.weight_decay is 0; set it")


def beta1_wrong(at: Plant) -> None:
    """Adam forgets the mean of gradients faster."""
    options(at, betas=lambda betas: (betas[0] - at.strength, betas[1]))


def beta2_wrong(at: Plant) -> None:
    """Adam forgets the squares of gradients faster."""
    options(at, betas=lambda betas: (betas[0], betas[1] - at.strength))


def adam_epsilon_wrong(at: Plant) -> None:
    """Adam's epsilon is another one."""
    options(at, eps=lambda _: at.strength)


def bias_correction_skipped(at: Plant) -> None:
    """Adam's moments are not corrected for having begun at zero."""

    def make(step: Function) -> Function:
        def uncorrected(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            uncorrected.steps += 1  # type: ignore[attr-defined]
            for group in self.param_groups:
                (beta1, beta2), t = group["betas"], uncorrected.steps  # type: ignore[attr-defined]
                factor = (1 - beta1**t) / (1 - beta2**t) ** 0.5
                group["lr"] *= factor**at.strength
            return step(self, *args, **kwargs)

        uncorrected.steps = 0  # type: ignore[attr-defined]
        return uncorrected

    # torch wraps `step` of each optimizer's class when it is made
    at.around(torch.optim.AdamW.__mro__[1], "step", make)


def warmup_off_by_one(at: Plant) -> None:
    """Warm-up begins a step too late, or too early."""
    at.edit(
        loop.Trainer,
        "__init__",
        "(step + 1) / (config.optim.warmup_steps + 1)",
        "max(0, step + 1 + int(_planted.strength)) / (config.optim.warmup_steps + 1)",
    )


def rate_not_as_reported(at: Plant) -> None:
    """The optimizer steps by another learning rate than the one that is reported."""

    def scale(_rate: Any, trainer: loop.Trainer, *_: object) -> None:
        for group in trainer.optimizer.param_groups:
            group["lr"] *= 1 + at.strength

    at.after(loop.Trainer, "accumulate", scale)


def clip_limit_wrong(at: Plant) -> None:
    """Gradients are clipped to another norm, or not at all."""

    def make(clip: Function) -> Function:
        def other(parameters: Any, norm: float, max_norm: float) -> Any:
            return clip(parameters, norm, max_norm * at.strength)

        return other

    at.around(gradients, "clip", make)


def options(at: Plant, **changes: Any) -> None:
    """Change options of the optimizer's groups."""

    def change(optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            group |= {key: new(group[key]) for key, new in changes.items()}

    at.after(loop, "make_optimizer", change)
