"""Tensors -> a few numbers each, by directions that are the same in every process."""

from __future__ import annotations

from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

DIRECTIONS = 4
"""Projections of a token: that two of them agree by chance takes a difference across all four."""


def projected(x: Tensor) -> Tensor:
    """[n, ...] -> [n, `DIRECTIONS` + 1] float32 on the CPU: random projections, and the norm."""
    if not x.is_floating_point():  # choices: their order says nothing
        x = x.detach().flatten(1).sort(1).values if x.ndim > 1 else x
    flat = x.detach().flatten(1).double() if x.ndim > 1 else x.detach().double().unsqueeze(1)
    directions = _directions(flat.shape[1]).to(flat.device)
    out = torch.cat([flat @ directions, flat.norm(dim=1, keepdim=True)], 1)
    return out.float().cpu()


def by_head(x: Tensor, size: int) -> Tensor:
    """[n, heads * size] -> [n, heads] float32 on the CPU: a random projection of each head."""
    heads = x.detach().double().unflatten(1, (-1, size))
    return (heads @ _directions(size)[:, 0].to(heads.device)).float().cpu()


def whole(x: Tensor) -> Tensor:
    """All of a tensor; of one that is sharded every rank has to ask for it, in the same order."""
    x = x.detach()
    if not isinstance(x, DTensor):
        return x
    return cast(DTensor, x.to(x.device_mesh.device_type)).full_tensor()


@cache
def _directions(width: int) -> Tensor:
    generator = torch.Generator().manual_seed(width)
    return torch.randn(width, DIRECTIONS, generator=generator, dtype=torch.float64)
