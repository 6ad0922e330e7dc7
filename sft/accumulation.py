"""Gradients of micro-batches, added up in float32 where a model's own type is shorter."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from sft.report.shards import local


class Sums:
    """The sum of a step's gradients so far; bfloat16 would round it after each micro-batch."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = [p for p in parameters if p.requires_grad and p.dtype != torch.float32]
        self.sums: dict[nn.Parameter, Tensor] = {}
        self.last: dict[nn.Parameter, Tensor] = {}

    @torch.no_grad()
    def add(self) -> None:
        """Take the gradients of a micro-batch."""
        for parameter in self.parameters:
            if parameter.grad is None:
                continue
            if parameter in self.sums:
                self.sums[parameter] += local(parameter.grad)
            else:
                self.sums[parameter] = local(parameter.grad).float()
            self.last[parameter], parameter.grad = parameter.grad, None

    @torch.no_grad()
    def put(self) -> None:
        """Make the sums the parameters' gradients, rounded once."""
        for parameter, gradient in self.last.items():
            local(gradient).copy_(self.sums[parameter])
            parameter.grad = gradient
