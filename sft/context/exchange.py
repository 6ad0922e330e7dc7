"""Differentiable moves between the ranks of a context-parallel group.

Written with functional collectives, which torch.compile traces without a graph break. Sequences
are cut into equal contiguous slices, rank by rank.
"""

from __future__ import annotations

import torch.distributed._functional_collectives as collectives
from torch import Tensor

from sft import counters
from sft.context.sequence import Sequence

# torch 2.13 renamed it
_all_gather = getattr(collectives, "all_gather_single_autograd", None) or (
    collectives.all_gather_tensor_autograd
)


def all_to_all(x: Tensor, split_dim: int, join_dim: int, sequence: Sequence) -> Tensor:
    """Split `split_dim` over the group and join the pieces, by rank, along `join_dim`."""
    if sequence.size == 1:
        return x
    split_dim, join_dim = split_dim % x.ndim, join_dim % x.ndim
    pieces = x.unflatten(split_dim, (sequence.size, -1)).movedim(split_dim, 0).contiguous()
    counters.add("cp_bytes_exchanged", pieces.nbytes * (sequence.size - 1) // sequence.size)
    shape = pieces.shape
    moved = collectives.all_to_all_single_autograd(pieces.flatten(0, 1), None, None, sequence.group)
    return moved.view(shape).movedim(0, join_dim).flatten(join_dim, join_dim + 1)


def heads_for_sequence(x: Tensor, sequence: Sequence, seq_dim: int, head_dim: int) -> Tensor:
    """[.., heads, seq / n, ..] on each rank -> [.., heads / n, seq, ..]."""
    return all_to_all(x, split_dim=head_dim, join_dim=seq_dim, sequence=sequence)


def sequence_for_heads(x: Tensor, sequence: Sequence, seq_dim: int, head_dim: int) -> Tensor:
    """The way back: [.., heads / n, seq, ..] on each rank -> [.., heads, seq / n, ..]."""
    return all_to_all(x, split_dim=seq_dim, join_dim=head_dim, sequence=sequence)


def gather(x: Tensor, sequence: Sequence, dim: int = 1) -> Tensor:
    """Every rank's slice joined along `dim`; its gradient is summed over the ranks and sliced."""
    if sequence.size == 1:
        return x
    counters.add("cp_bytes_exchanged", x.nbytes * (sequence.size - 1))
    return _all_gather(x.contiguous(), dim, sequence.group)


def left_halo(x: Tensor, width: int, sequence: Sequence, dim: int) -> Tensor:
    """The last `width` positions of the rank to the left along `dim`, zeros on the first rank.

    Raises ValueError where a slice is shorter than the halo.
    """
    if width > x.shape[dim]:
        raise ValueError(
            f"a slice of {x.shape[dim]} tokens is shorter than the {width} it must hand on"
        )
    tail = x.narrow(dim, x.shape[dim] - width, width)
    if sequence.size == 1:
        return tail * 0
    tails = gather(tail, sequence, dim).unflatten(dim, (sequence.size, width))
    left = tails.select(dim, max(sequence.rank - 1, 0))
    return left if sequence.rank else left * 0
