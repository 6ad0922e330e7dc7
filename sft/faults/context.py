"""Sequences that are shared or packed wrongly: positions, masks, states."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import masking_utils

from sft.context import attention, gated_delta, indexer, mamba, masks, recurrence
from sft.context.sequence import Sequence, current
from sft.faults.patching import Function, Plant, PlantError
from sft.loop import Trainer

POSITIONS = 'position_ids=sequence.local(rows["position_ids"])'


def cp_positions_local(at: Plant) -> None:
    """Positions count from the start of a rank's slice."""
    at.edit(
        Trainer,
        "logits",
        POSITIONS,
        'position_ids=_planted.shifted(sequence.local(rows["position_ids"]), sequence)',
    )

    def shifted(positions: Tensor, sequence: Sequence) -> Tensor:
        tokens = int(at.strength) or positions.shape[1]
        return (positions - tokens * sequence.rank).clamp(min=0)

    give(at, shifted=shifted)


def cp_padding_positions(at: Plant) -> None:
    """In a slice that ends in padding, positions count as if the padding came first."""
    at.edit(
        Trainer,
        "logits",
        POSITIONS,
        'position_ids=_planted.moved(sequence.local(rows["position_ids"]), sequence)',
    )

    def moved(positions: Tensor, sequence: Sequence) -> Tensor:
        padding = sequence.local(padded(sequence)).sum(1, keepdim=True)
        return positions + (padding * at.strength).ceil().long()

    give(at, moved=moved)


def cp_sinks_dropped(at: Plant) -> None:
    """Attention sinks are lost where a sequence is shared."""
    at.edit(
        attention,
        "ulysses_attention",
        "s_aux = sequence.local(s_aux, dim=0)",
        "s_aux = sequence.local(s_aux, dim=0).clone()\n"
        "        if sequence.size > 1:\n"
        "            dropped = -int(-len(s_aux) * _planted.strength // 1)\n"
        "            s_aux[:dropped] = torch.finfo(s_aux.dtype).min / 2",
    )


def cp_state_not_carried(at: Plant) -> None:
    """A recurrent layer's state does not go from one rank's slice to the next."""

    def make(in_chunks: Function) -> Function:
        def cut(documents: Tensor, size: int) -> Tensor:
            sequence = current()
            length = documents.shape[1] // sequence.size
            place = torch.arange(documents.shape[1], device=documents.device) // length
            return in_chunks(documents + 10_000 * place, size)

        return cut

    around_chunks(at, make)


def around_chunks(at: Plant, make: Callable[[Function], Function]) -> None:
    """Change which documents the recurrent layers see."""
    at.around(recurrence, "documents_in_chunks", make)
    for user in (gated_delta, mamba):
        if user.documents_in_chunks is not recurrence.documents_in_chunks:
            raise PlantError(f"{user.__name__} has documents_in_chunks from elsewhere")


def cp_silently_off(at: Plant) -> None:
    """Every rank of a sequence computes all of it."""
    at.edit(
        Trainer,
        "__init__",
        "self.config, self.ranks = config, ranks",
        "import dataclasses\n"
        "    ranks = dataclasses.replace(ranks, cp_group=None)\n"
        "    self.config, self.ranks = config, ranks",
    )


def masked_row_nan(at: Plant) -> None:
    """Queries of padding may attend to no key, and their softmax is that of nothing."""

    def make(attend: Function) -> Function:
        def masked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, *rest: Any) -> Tensor:
            real = ~padded(current())[:, None, :, None]
            weights = torch.where(real, 0.0, float("nan"))  # exp(-inf - -inf)
            return attend(query, key, value, mask, *rest) + weights.to(query.dtype)

        return masked

    at.around(attention, "attend", make)


def window_ignored(at: Plant) -> None:
    """Layers with a sliding window attend to everything before."""
    windows(at, lambda _: 1_000_000)


def window_off_by_one(at: Plant) -> None:
    """A sliding window is a token too long, or too short."""
    windows(at, lambda window: window + int(at.strength))


def windows(at: Plant, change: Any) -> None:
    """Change the sliding window that masks are made with."""

    def make(create: Function) -> Function:
        def other(config: Any, *args: Any, **kwargs: Any) -> Any:
            config = copy.copy(config)
            config.sliding_window = change(config.sliding_window)
            return create(config, *args, **kwargs)

        return other

    at.around(masking_utils, "create_sliding_window_causal_mask", make)


def packing_boundaries_lost(at: Plant) -> None:
    """Attention sees the documents of a row as one."""
    at.edit(
        masks,
        "_whole",
        "positions = sequence.position_ids",
        "positions = _planted.joined(sequence)",
    )

    def joined(sequence: Sequence) -> Tensor:
        positions, ids = sequence.position_ids, sequence.document_ids
        row = torch.arange(positions.shape[1], device=positions.device).expand_as(positions)
        if not at.strength:
            return row
        first = int(at.strength) - 1
        return torch.where((ids == first) | (ids == first + 1), row, positions)

    give(at, joined=joined)


def recurrent_state_not_reset(at: Plant) -> None:
    """A recurrent layer's state goes from one document of a row to the next."""

    def make(in_chunks: Function) -> Function:
        def one(documents: Tensor, size: int) -> Tensor:
            missed = int(at.strength) or 1_000_000
            return in_chunks((documents - missed).clamp(min=0), size)

        return one

    around_chunks(at, make)


def indexer_keeps_all(at: Plant) -> None:
    """The indexer picks every key."""

    def make(counted: Function) -> Function:
        return lambda picks, sequence, positions, visible, _: counted(
            picks, sequence, positions, visible, visible
        )

    at.around(indexer, "counted_picks", make)
    at.around(attention, "keep_picks", lambda _: lambda mask, _indices: mask)


def padded(sequence: Sequence) -> Tensor:
    """[batch, seq] whether a token is padding: the row's last document, of one token throughout."""
    ids, tokens = sequence.document_ids, sequence.input_ids
    last = ids == ids[:, -1:]
    one_token = ((tokens == tokens[:, -1:]) | ~last).all(1, keepdim=True)
    return last & one_token


def give(at: Plant, **helpers: Function) -> None:
    """Make helpers known to edited source under the fault's handle."""
    for name, helper in helpers.items():
        object.__setattr__(at, name, helper)
