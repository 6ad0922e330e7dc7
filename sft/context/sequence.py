"""The sequence that is being computed: its positions, its documents, and who holds which slice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Sequence:
    """The whole sequence that a context-parallel group computes, over all its ranks."""

    position_ids: Tensor
    """[batch, seq] positions, starting at 0 with each document."""
    document_ids: Tensor
    """[batch, seq] the index of each token's document in its row."""
    input_ids: Tensor
    """[batch, seq] tokens."""
    group: dist.ProcessGroup | None = None
    """The ranks that hold its slices; None when one rank holds it all."""
    fla: bool = False
    """Whether flash-linear-attention's kernels compute the gated delta rule."""
    padding: Tensor | None = None
    """[batch, seq] whether a token only fills its row up; None where none does."""
    places: Tensor | None = None
    """[batch, seq] a number for each token of the global batch, the same in every layout; -1 for
    padding. None where no choices are kept."""
    place: Tensor = field(init=False)
    """[1] this rank's place among them, to compute with: as a number it would be part of a compiled
    graph, and ranks whose graphs differ may order their collectives differently, and wait forever.
    """

    def __post_init__(self) -> None:
        place = torch.tensor([self.rank], device=self.position_ids.device)
        object.__setattr__(self, "place", place)

    @property
    def size(self) -> int:
        """Ranks that share the sequence."""
        return 1 if self.group is None else self.group.size()

    @property
    def rank(self) -> int:
        """This rank's place among them."""
        return 0 if self.group is None else self.group.rank()

    @property
    def group_name(self) -> str:
        """The group's name, which operators take in its place."""
        return "" if self.group is None else self.group.group_name

    @property
    def real(self) -> Tensor:
        """[batch, seq] whether a token is a document's, and not padding."""
        if self.padding is None:
            return torch.ones_like(self.position_ids, dtype=torch.bool)
        return ~self.padding

    @cached_property
    def cu_seqlens(self) -> Tensor:
        """[documents + 1] where each begins, its rows laid end to end, and where the last ends."""
        documents = self.document_ids
        begins = torch.ones_like(documents, dtype=torch.bool)
        begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
        return F.pad(begins.flatten().nonzero().squeeze(1), (0, 1), value=documents.numel())

    def local(self, x: Tensor, dim: int = 1) -> Tensor:
        """This rank's slice of a whole-sequence tensor, in the same graph on every rank."""
        if self.group is None:
            return x
        slices = x.unflatten(dim, (self.size, -1))
        return slices.index_select(dim, self.place).squeeze(dim)


def slice_of(x: Tensor, group: dist.ProcessGroup | None, dim: int = 1) -> Tensor:
    """What a rank holds of a tensor that its group shares, outside of what is compiled."""
    return x if group is None else x.chunk(group.size(), dim)[group.rank()]


_current: Sequence | None = None


def active() -> Sequence | None:
    """The sequence set by `computing`, or None outside of it."""
    return _current


def current() -> Sequence:
    """The sequence set by `computing`; raises RuntimeError outside of it."""
    if _current is None:
        raise RuntimeError(
            "no sequence is being computed: wrap forward and backward in `computing`"
        )
    return _current


@contextmanager
def computing(sequence: Sequence) -> Iterator[Sequence]:
    """Make `sequence` current for forward and backward (recomputation reads it again)."""
    global _current
    previous, _current = _current, sequence
    try:
        yield sequence
    finally:
        _current = previous


def document_ids(position_ids: Tensor) -> Tensor:
    """[batch, seq] index of each token's document, from positions that restart at 0."""
    return (position_ids == 0).cumsum(-1, dtype=torch.int64) - 1
