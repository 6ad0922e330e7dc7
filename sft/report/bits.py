"""A hash of a tensor's bits, computed where the tensor is.

Each value is mixed with its place before the results are added, so that changes do not cancel. In a
weighted sum they can: Adam's first step moves every value by the same amount up or down, and of
four values weighted 1, 3, 5 and 7 the moves + - - + add up to nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
STRIDE, FIRST, SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
"""Of splitmix64 (Steele, Lea and Flood, 2014), as signed integers."""


@torch.no_grad()
def hashed(values: Tensor, part: int = 2**22) -> Tensor:
    """An integer that changes, but for one chance in 2**64, with any bit of `values`.

    In parts, since integers take several times the memory of what they are of.
    """
    flat = values.detach().flatten()
    words = flat.view(WORDS[flat.element_size()])
    total = torch.zeros((), dtype=torch.long, device=flat.device)
    for start in range(0, len(words), part):
        total += mixed(words[start : start + part].long(), start).sum()
    return total


def mixed(words: Tensor, start: int) -> Tensor:
    """Each word mixed with its place, counted from `start`; int64 wraps around."""
    places = torch.arange(start + 1, start + 1 + len(words), device=words.device)
    x = words ^ (places * STRIDE)
    x = (x ^ (x >> 30)) * FIRST
    x = (x ^ (x >> 27)) * SECOND
    return x ^ (x >> 31)
