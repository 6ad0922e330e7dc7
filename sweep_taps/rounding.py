"""A run that rounds otherwise, to measure what rounding does.

With SWEEP_TAPS_ROUNDING=SEED every innermost module's output, and the gradient that it hands back,
is changed by at most one unit in the last place, at random: Monte Carlo arithmetic (Parker 1997).
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import torch
from torch import Tensor

VARIABLE = "SWEEP_TAPS_ROUNDING"


class Rounding:
    """Changes tensors, if that is asked for."""

    def __init__(self) -> None:
        self.seed = os.environ.get(VARIABLE, "")
        self.is_on = bool(self.seed)

    def of_output(self, out: Any, place: str) -> Any:
        """A module's output, of whatever kind, with its floating tensors changed."""
        if not self.is_on:
            return out
        if isinstance(out, Tensor):
            return self.of(out, place)
        if type(out) is tuple:
            return tuple(self.of_output(item, f"{place}.{n}") for n, item in enumerate(out))
        return out

    def of(self, x: Tensor, place: str) -> Tensor:
        """`x` times 1 + u eps, u uniform in [-1, 1], drawn by the place in the model."""
        if not self.is_on or not x.is_floating_point():
            return x
        digest = hashlib.sha256(f"{self.seed} {place}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        noise = torch.rand(x.shape, generator=generator, dtype=torch.float64).to(x.device)
        factor = 1 + (2 * noise - 1) * torch.finfo(x.dtype).eps
        return (x.double() * factor).to(x.dtype)
