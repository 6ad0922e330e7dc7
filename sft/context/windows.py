"""Windows of equally many tokens, cut anew in each document of a packed row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sft.context.sequence import Sequence


@dataclass(frozen=True)
class Windows:
    """A row's complete windows in order, [batch, windows]; what is left of a document is in none.

    There is a slot for as many as a row could hold, `seq // width`. Slots that its documents leave
    over hold any tokens, and no query sees them.
    """

    width: int
    starts: Tensor
    """The index in the row of a window's first token."""
    positions: Tensor
    """That token's position in its document."""
    documents: Tensor
    """The document; -1 for a slot left over."""

    def tokens(self, x: Tensor) -> Tensor:
        """[batch, seq, ..] of the whole sequence -> [batch, windows, width, ..]."""
        within = self.starts.unsqueeze(-1) + torch.arange(self.width, device=x.device)
        return take(x, within.flatten(1)).unflatten(1, within.shape[1:])

    def visible(self, positions: Tensor, documents: Tensor) -> Tensor:
        """[batch, queries, windows]: those of a query's document that end at or before it."""
        closed = (self.positions + self.width).unsqueeze(1) <= positions.unsqueeze(-1) + 1
        return closed & (self.documents.unsqueeze(1) == documents.unsqueeze(-1))


def cut(sequence: Sequence, width: int) -> Windows:
    """The windows of the whole sequence, of static number, so that the compiler can trace it."""
    positions, documents = sequence.position_ids, sequence.document_ids
    closes = (positions + 1) % width == 0
    # tokens that close a window come first, in order
    last = closes.int().argsort(dim=1, descending=True, stable=True)
    last = last[:, : positions.shape[1] // width]
    starts = (last - (width - 1)).clamp(min=0)
    owners = documents.gather(1, last).masked_fill(~closes.gather(1, last), -1)
    return Windows(width, starts, positions.gather(1, starts), owners)


def take(x: Tensor, index: Tensor) -> Tensor:
    """Rows of `x` [batch, seq, ..] at `index` [batch, n] -> [batch, n, ..]."""
    wide = index.view(*index.shape, *(1,) * (x.ndim - 2)).expand(*index.shape, *x.shape[2:])
    return x.gather(1, wide)


def best(scores: Tensor, visible: Tensor, count: int) -> Tensor:
    """Which of the visible candidates [batch, queries, candidates] have the `count` best scores.

    Of equal ones the first win, wherever in a row the document lies (`topk` would not say which).
    """
    ordered = scores.masked_fill(~visible, float("-inf")).argsort(
        dim=-1, descending=True, stable=True
    )
    picked = torch.zeros_like(visible).scatter(-1, ordered[..., :count], True)
    return picked & visible
