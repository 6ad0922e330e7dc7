"""Packed rows, and what each of their documents computes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from sft.context.sequence import Sequence, document_ids

Inputs = Mapping[str, Tensor]


def pack(
    lengths: tuple[int, ...], tokens: Tensor | None = None, group: dist.ProcessGroup | None = None
) -> Sequence:
    """A row of documents of these lengths."""
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    tokens = torch.zeros_like(positions) if tokens is None else tokens
    return Sequence(positions, document_ids(positions), tokens, group)


def each_alone(
    function: Callable[..., Tensor], lengths: tuple[int, ...], dim: int, inputs: Inputs
) -> Tensor:
    """The outputs of a function of one document at a time, cut from and joined along `dim`."""
    starts = [0, *accumulate(lengths)]
    documents = [
        function(**{name: x.narrow(dim, start, n) for name, x in inputs.items()})
        for start, n in zip(starts, lengths, strict=False)
    ]
    return torch.cat(documents, dim)


def gradients(out: Tensor, inputs: Inputs) -> list[Tensor]:
    """Gradients of a sum in which every element of `out` has its own weight."""
    weights = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return list(torch.autograd.grad((out * weights).sum(), list(inputs.values())))


def assert_same(ours: Tensor, theirs: Tensor, inputs: Inputs, tolerance: float) -> None:
    """Equal values, and equal gradients of every input, relative to the largest of each."""
    pairs = [(ours, theirs)]
    pairs += zip(gradients(ours, inputs), gradients(theirs, inputs), strict=True)
    for mine, other in pairs:
        assert (mine - other).abs().max() <= tolerance * other.abs().max()


def operators(function: Callable[..., Tensor], inputs: Inputs) -> int:
    """How many operators a compiler sees in the function and its gradients."""

    def both(parts: Inputs) -> list[Tensor]:
        return gradients(function(**parts), parts)

    return len(make_fx(both)(dict(inputs)).graph.nodes)
