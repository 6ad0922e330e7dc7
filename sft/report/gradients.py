"""The gradient over all ranks, whatever meshes it is sharded over: its norm, its bits, clipped."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sft.ranks import Ranks
from sft.report import bits
from sft.report.shards import local, replicas

GROUPS = (
    ("experts", r"\.experts\."),
    ("router", r"\.(gate|router|mlp\.gate)\.|\.gate$|correction_bias"),
    ("norm", r"norm"),
    ("embedding", r"embed|ngram|\.ple\."),
    ("head", r"lm_head"),
    ("attention", r"attn|attention|mixer|linear"),
)
"""Parameter groups by the first pattern that a name matches; the rest is `mlp`."""


def group_of(name: str) -> str:
    """The group that a parameter's gradient norm is reported in."""
    return next((group for group, pattern in GROUPS if re.search(pattern, name)), "mlp")


@torch.no_grad()
def norms(
    named: Iterable[tuple[str, nn.Parameter]], ranks: Ranks
) -> tuple[float, dict[str, float]]:
    """The gradient's 2-norm, in total and per group, over all ranks and meshes.

    torch's own `clip_grad_norm_` refuses parameters of several meshes, so squares are summed here:
    each rank's share, over the world, with replicated values counted once.
    """
    squares: dict[str, Tensor] = {}
    for name, parameter in named:
        group = group_of(name)
        squares.setdefault(group, torch.zeros((), dtype=torch.float64, device=parameter.device))
        if parameter.grad is not None:
            share = local(parameter.grad).double().square().sum() / replicas(parameter.grad)
            squares[group] = squares[group] + share
    stacked = torch.stack(list(squares.values())).to(ranks.device)  # gradients may wait on the CPU
    ranks.sum(stacked)
    groups = dict(zip(squares, stacked.sqrt().tolist(), strict=True))
    return stacked.sum().sqrt().item(), groups


@torch.no_grad()
def digest(parameters: Iterable[nn.Parameter], device: torch.device) -> str:
    """16 hex digits of all bits of this rank's gradients, for telling whether a repeat is one.

    A norm says little of a change that is spread over a gradient; any changed bit shows here.
    """
    gradients = (local(p.grad) for p in parameters if p.grad is not None)
    hashes = [bits.hashed(gradient).to(device) for gradient in gradients]
    words = torch.stack(hashes).tolist() if hashes else []
    return hashlib.sha256(str(words).encode()).hexdigest()[:16]


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter], norm: float, max_norm: float) -> float:
    """Scale gradients so that their norm is at most `max_norm`; returns the factor.

    As torch's `clip_grad_norm_`. A `max_norm` of 0 clips nothing.
    """
    scale = min(1.0, max_norm / (norm + 1e-6)) if max_norm else 1.0
    if scale < 1.0:
        for parameter in parameters:
            if parameter.grad is not None:
                local(parameter.grad).mul_(scale)
    return scale
