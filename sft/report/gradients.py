"""The gradient over all ranks, whatever meshes it is sharded over: its norm, its bits, clipped."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sft.ranks import Ranks
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

    A norm says little of a change that is spread over a gradient; any changed bit shows here. The
    bits are summed as integers where they are, so no order of summing matters.
    """
    found = (local(one.grad).flatten() for one in parameters if one.grad is not None)
    sums = [bits_of(gradient).to(device) for gradient in found]
    words = torch.stack(sums).tolist() if sums else []
    return hashlib.sha256(str(words).encode()).hexdigest()[:16]


def bits_of(flat: Tensor, part: int = 2**22) -> Tensor:
    """The bits of a vector, as an integer weighted by place, modulo 2**64.

    In parts, since integers and weights take several times the memory of what they are of.
    """
    words = flat.view(torch.int32 if flat.element_size() == 4 else torch.int16)
    total = torch.zeros((), dtype=torch.long, device=flat.device)
    for start in range(0, len(words), part):
        bits = words[start : start + part].long()
        odd = torch.arange(1, 2 * len(bits), 2, device=bits.device)
        total += (bits * (odd + 2 * start)).sum()
    return total


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter], norm: float, max_norm: float) -> None:
    """Scale gradients so that their norm is at most `max_norm`, as torch's `clip_grad_norm_`."""
    scale = max_norm / (norm + 1e-6)
    if scale < 1.0:
        for parameter in parameters:
            if parameter.grad is not None:
                local(parameter.grad).mul_(scale)
