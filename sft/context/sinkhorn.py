"""DeepSeek-V4's Sinkhorn iterations as one operator, so that a compiler does not unroll them.

Each layer makes two matrices of stream weights doubly stochastic in twenty rounds (Sinkhorn and
Knopp 1967): as a graph that is hundreds of operators, most of what its compilation took.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from sft.context.replace import replace_forwards
from sft.context.sequence import Sequence

DIMS = (-1, -2)
"""In a round rows are divided by their sums, then columns."""


def install(modeling: ModuleType) -> list[str]:
    """Replace the forward of the hyper-connections."""
    return replace_forwards(modeling, DeepseekV4HyperConnection=hyper_connection)


def hyper_connection(
    sequence: Sequence, layer: Any, hidden_streams: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The layer's own forward, without its rounds but the half that it begins with; then ours."""
    rounds, layer.hc_sinkhorn_iters = layer.hc_sinkhorn_iters, 1
    post, comb, collapsed = type(layer).forward.__wrapped__(layer, hidden_streams)
    layer.hc_sinkhorn_iters = rounds
    return post, sinkhorn(comb, rounds - 1, layer.hc_eps), collapsed


def sinkhorn(matrices: Tensor, rounds: int, epsilon: float) -> Tensor:
    """[..., n, n] positive matrices, rows and columns divided by their sums in turn."""
    return _sinkhorn(matrices, rounds, epsilon) if rounds else matrices


def _divided(matrices: Tensor, rounds: int, epsilon: float) -> list[tuple[Tensor, Tensor, int]]:
    """Of each division what comes of it, the sums that it divides by, and along which dim."""
    done = []
    for _ in range(rounds):
        for dim in DIMS:
            sums = matrices.sum(dim=dim, keepdim=True) + epsilon
            matrices = matrices / sums
            done.append((matrices, sums, dim))
    return done


@torch.library.custom_op("sft::sinkhorn", mutates_args=())
def _sinkhorn(matrices: Tensor, rounds: int, epsilon: float) -> Tensor:
    return _divided(matrices, rounds, epsilon)[-1][0]


@torch.library.custom_op("sft::sinkhorn_backward", mutates_args=())
def _sinkhorn_backward(gradient: Tensor, matrices: Tensor, rounds: int, epsilon: float) -> Tensor:
    """Through y = x / s, s = sum x + epsilon: dx = (dy - sum(dy y)) / s, from the last on."""
    for divided, sums, dim in reversed(_divided(matrices, rounds, epsilon)):
        gradient = (gradient - (gradient * divided).sum(dim=dim, keepdim=True)) / sums
    return gradient


def _keep(ctx: Any, inputs: tuple[Tensor, int, float], output: Tensor) -> None:
    matrices, ctx.rounds, ctx.epsilon = inputs
    ctx.save_for_backward(matrices)


def _backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    (matrices,) = ctx.saved_tensors
    return _sinkhorn_backward(gradient, matrices, ctx.rounds, ctx.epsilon), None, None


_sinkhorn.register_fake(lambda matrices, _rounds, _epsilon: torch.empty_like(matrices))
_sinkhorn_backward.register_fake(lambda gradient, *_: torch.empty_like(gradient))
_sinkhorn.register_autograd(_backward, setup_context=_keep)
