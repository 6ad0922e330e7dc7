"""Documents that are rendered, masked, cut or ordered wrongly, alike on every rank."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

from sft import packing
from sft.data import IGNORED, Row
from sft.faults.patching import Plant

Change = Callable[[Row, list[slice]], None]


def prompt_trained(at: Plant) -> None:
    """Tokens of the user are under the loss as well."""

    def train_all(row: Row, documents: list[slice]) -> None:
        for place in documents:
            following = row["input_ids"][place][1:]
            row["labels"][place] = torch.cat([following, following.new_full((1,), IGNORED)])

    change_rows(at, train_all)


def labels_not_shifted(at: Plant) -> None:
    """A token has to predict itself."""

    def unshift(row: Row, documents: list[slice]) -> None:
        is_trained = row["labels"] != IGNORED
        row["labels"][is_trained] = row["input_ids"][is_trained]

    change_rows(at, unshift)


def answer_start_not_trained(at: Plant) -> None:
    """The first token of an answer is not under the loss."""

    def mask(row: Row, documents: list[slice]) -> None:
        is_trained = row["labels"] != IGNORED
        begins = is_trained & ~is_trained.roll(1)
        row["labels"][begins] = IGNORED

    change_rows(at, mask)


def answer_end_not_trained(at: Plant) -> None:
    """The last token of an answer, which ends the turn, is not under the loss."""

    def mask(row: Row, documents: list[slice]) -> None:
        is_trained = row["labels"] != IGNORED
        ends = is_trained & ~is_trained.roll(-1)
        row["labels"][ends] = IGNORED

    change_rows(at, mask)


def template_token_wrong(at: Plant) -> None:
    """The template begins a document with another token."""

    def replace(row: Row, documents: list[slice]) -> None:
        for place in documents:
            row["input_ids"][place.start] = row["input_ids"][place.start + 1]

    change_rows(at, replace)


def documents_cut_short(at: Plant) -> None:
    """A document loses its last token where it is cut to the length of a row."""

    def cut(row: Row, documents: list[slice]) -> None:
        last = documents[-1].stop - 1
        row["labels"][last - 1] = IGNORED
        row["input_ids"][last] = row["input_ids"][-1]
        row["position_ids"][last:] = torch.arange(len(row["position_ids"]) - last)
        row["padding"][last] = True

    change_rows(at, cut)


def documents_reordered(at: Plant) -> None:
    """The documents of a row are not in the order of the source."""

    def reverse(row: Row, documents: list[slice]) -> None:
        order = torch.cat(
            [torch.arange(document.start, document.stop) for document in reversed(documents)]
        )
        for column in row.values():
            column[: len(order)] = column[order].clone()

    change_rows(at, reverse)


def rows_all_the_same(at: Plant) -> None:
    """Rows of a batch are the first one of the data."""
    every = max(1, round(1 / at.strength))

    def repeat(rows: list[Row], *_: object) -> list[Row]:
        return [row if n % every else rows[0] for n, row in enumerate(rows)]

    at.after(packing, "packed_rows", repeat)


def change_rows(at: Plant, change: Change) -> None:
    """Change copies of every few rows; `change` gets a row and where its documents lie."""
    every = max(1, round(1 / at.strength))

    def spoil(rows: list[Row], *_: object) -> list[Row]:
        return [row if n % every else changed(row, change) for n, row in enumerate(rows)]

    at.after(packing, "packed_rows", spoil)


def changed(row: Row, change: Change) -> Row:
    """A copy of a row, changed."""
    copy = {key: column.clone() for key, column in row.items()}
    if documents := documents_of(copy):
        change(copy, documents)
    return copy


def documents_of(row: Row) -> list[slice]:
    """Where a row's documents lie, without padding."""
    end = int((~row["padding"]).sum())
    starts: Tensor = (row["position_ids"][:end] == 0).nonzero().flatten()
    return [slice(first, last) for first, last in pairwise([*starts.tolist(), end])]
