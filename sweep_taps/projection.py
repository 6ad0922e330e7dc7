"""Tensors -> a few numbers each, by directions that are the same in every process."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

DIRECTIONS = 4
"""Projections of a token: that two of them agree by chance takes a difference across all four."""
WIDE = 512  # values of a token beyond which float32 is precise enough, and much faster
KEPT = 6  # tensors whose projections are remembered: what one module gives the next one takes
_known: OrderedDict[tuple[object, ...], tuple[Tensor, Tensor]] = OrderedDict()


def projected(x: Tensor) -> Tensor:
    """[n, ...] -> [n, `DIRECTIONS` + 1] float32 on the CPU: random projections, and the norm."""
    x = x.detach()
    key = (x.data_ptr(), x.shape, x.stride(), x.dtype, x._version)
    if key not in _known:
        _known[key] = x, _projected(x)  # with the tensor, whose memory is not used again meanwhile
        if len(_known) > KEPT:
            _known.popitem(last=False)
    return _known[key][1]


def _projected(x: Tensor) -> Tensor:
    if not x.is_floating_point():  # choices: their order says nothing
        x = x.flatten(1).sort(1).values if x.ndim > 1 else x
    flat = x.flatten(1) if x.ndim > 1 else x.unsqueeze(1)
    flat = flat.float() if flat.shape[1] > WIDE else flat.double()
    directions = _directions(flat.shape[1]).to(flat)
    out = torch.cat([flat @ directions, flat.square().sum(1, keepdim=True).sqrt()], 1)
    return out.float().cpu()


def by_head(x: Tensor, size: int) -> Tensor:
    """[n, heads * size] -> [n, heads] float32 on the CPU: a random projection of each head."""
    heads = x.detach().double().unflatten(1, (-1, size))
    return (heads @ _directions(size)[:, 0].to(heads)).float().cpu()


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
