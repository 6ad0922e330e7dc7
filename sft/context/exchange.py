"""Differentiable moves between the ranks of a context-parallel group.

The collectives are operators of their own, which torch.compile puts into its graph as they are, and
which count what they move whenever they run. Sequences are cut into equal contiguous slices, rank
by rank.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from sft.context.sequence import Sequence
from sft.errors import ConfigError
from sft.report import counters


def all_to_all(x: Tensor, split_dim: int, join_dim: int, sequence: Sequence) -> Tensor:
    """Split `split_dim` over the group and join the pieces, by rank, along `join_dim`."""
    if sequence.size == 1:
        return x
    split_dim, join_dim = split_dim % x.ndim, join_dim % x.ndim
    pieces = x.unflatten(split_dim, (sequence.size, -1)).movedim(split_dim, 0).contiguous()
    moved = torch.ops.sft.all_to_all(pieces, sequence.group_name)
    return moved.movedim(0, join_dim).flatten(join_dim, join_dim + 1)


def heads_for_sequence(x: Tensor, sequence: Sequence, seq_dim: int, head_dim: int) -> Tensor:
    """[.., heads, seq / n, ..] on each rank -> [.., heads / n, seq, ..]."""
    return all_to_all(x, split_dim=head_dim, join_dim=seq_dim, sequence=sequence)


def sequence_for_heads(x: Tensor, sequence: Sequence, seq_dim: int, head_dim: int) -> Tensor:
    """The way back: [.., heads / n, seq, ..] on each rank -> [.., heads, seq / n, ..]."""
    return all_to_all(x, split_dim=seq_dim, join_dim=head_dim, sequence=sequence)


def divisible(x: Tensor, head_dim: int, sequence: Sequence) -> Tensor:
    """Repeat heads, each beside itself, until the group divides them."""
    if x.shape[head_dim] % sequence.size == 0:  # torch 2.11 cannot trace the gcd of a dynamic size
        return x
    repeats = sequence.size // math.gcd(x.shape[head_dim], sequence.size)
    return x.repeat_interleave(repeats, dim=head_dim)


def gather(x: Tensor, sequence: Sequence, dim: int = 1) -> Tensor:
    """Every rank's slice joined along `dim`; its gradient is summed over the ranks and sliced."""
    if sequence.size == 1:
        return x
    slices = torch.ops.sft.all_gather(x.contiguous(), sequence.size, sequence.group_name)
    dim = dim % x.ndim
    return slices.movedim(0, dim).flatten(dim, dim + 1)


def left_halo(x: Tensor, width: int, sequence: Sequence, dim: int) -> Tensor:
    """The last `width` positions of the rank to the left along `dim`, zeros on the first rank.

    Raises `ConfigError` where a slice is shorter than the halo that it must hand on.
    """
    if sequence.size == 1:
        return x.new_zeros(*x.shape[:dim], width, *x.shape[dim + 1 :])
    if width > x.shape[dim]:
        raise ConfigError(
            f"layout.cp={sequence.size} leaves a rank {x.shape[dim]} tokens, but a convolution "
            f"reads {width} of its neighbour's; use data.seq_len={width * sequence.size} or more"
        )
    tail = x.narrow(dim, x.shape[dim] - width, width)
    tails = gather(tail, sequence, dim).unflatten(dim, (sequence.size, width))
    left = tails.index_select(dim, (sequence.place - 1).clamp(min=0)).squeeze(dim)
    return left * (sequence.place > 0)


# torch 2.13's names, where the second ones are deprecated; 2.11 has those only
_all_gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@torch.library.custom_op("sft::all_to_all", mutates_args=())
def _all_to_all(pieces: Tensor, group: str) -> Tensor:
    """[ranks, ..] a piece for each rank -> a piece of each rank."""
    _count(pieces.nbytes * (len(pieces) - 1) // len(pieces))
    out = torch.empty_like(pieces)
    dist.all_to_all_single(out, pieces, group=named_group(group))
    return out


@torch.library.custom_op("sft::all_gather", mutates_args=())
def _all_gather(x: Tensor, ranks: int, group: str) -> Tensor:
    """[..] on each rank -> [ranks, ..] of all."""
    _count(x.nbytes * (ranks - 1))
    out = x.new_empty(ranks, *x.shape)
    _all_gather_single(out.flatten(0, 1), x, group=named_group(group))
    return out


@torch.library.custom_op("sft::reduce_scatter", mutates_args=())
def _reduce_scatter(pieces: Tensor, group: str) -> Tensor:
    """[ranks, ..] a piece for each rank -> [..] the sum of the pieces for this one."""
    _count(pieces.nbytes * (len(pieces) - 1) // len(pieces))
    out = torch.empty_like(pieces[0])
    _reduce_scatter_single(out, pieces.flatten(0, 1), group=named_group(group))
    return out


def named_group(name: str) -> dist.ProcessGroup:
    """The group of a name: operators take strings."""
    return dist.distributed_c10d._resolve_process_group(cast(Any, name))


def _count(sent: int) -> None:
    counters.add("cp_bytes_exchanged", sent)


def _keep_group(ctx: Any, inputs: tuple[Any, ...], **_: Tensor) -> None:
    ctx.group = inputs[-1]


def _all_to_all_back(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    return torch.ops.sft.all_to_all(gradient.contiguous(), ctx.group), None


def _all_gather_back(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    return torch.ops.sft.reduce_scatter(gradient.contiguous(), ctx.group), None, None


_all_to_all.register_fake(lambda pieces, _group: torch.empty_like(pieces))
_all_gather.register_fake(lambda x, ranks, _group: x.new_empty(ranks, *x.shape))
_reduce_scatter.register_fake(lambda pieces, _group: torch.empty_like(pieces[0]))
_all_to_all.register_autograd(_all_to_all_back, setup_context=_keep_group)
_all_gather.register_autograd(_all_gather_back, setup_context=_keep_group)
