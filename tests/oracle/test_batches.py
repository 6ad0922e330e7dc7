"""Files of batches: rows become documents, slices are joined, and mistakes are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle import batches
from oracle.batches import Document
from oracle.errors import OracleError

FIRST = Document((5, 6, 7), (6, 7, -100))
SECOND = Document((8, 9, 10), (-100, 10, -100))
Row = Callable[..., dict[str, Any]]
Write = Callable[..., Path]


def contents(documents: list[Document]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(document.tokens, document.targets) for document in documents]


BOTH = contents([FIRST, SECOND])


def test_a_row_is_cut_where_positions_restart(write: Write, row: Row) -> None:
    assert contents(batches.read([write(row())])[1]) == BOTH


def test_a_row_may_say_its_documents_lengths_instead(write: Write, row: Row) -> None:
    path = write(row(position_ids=None, document_lengths=[3, 3]))
    assert contents(batches.read([path])[1]) == BOTH


def test_labels_of_the_token_itself_are_those_of_the_token_before(write: Write, row: Row) -> None:
    labels = [-100, 6, 7, -100, -100, 10]
    assert contents(batches.read([write(row(labels=labels, labels_of="token"))])[1]) == BOTH


def test_padding_is_no_document(write: Write, row: Row) -> None:
    padded = row(labels=[6, 7, -100, -100, -100, -100], padding=3)
    assert contents(batches.read([write(padded)])[1]) == contents([FIRST])


def test_slices_of_a_row_are_joined_whatever_their_order(write: Write, row: Row) -> None:
    whole = row()
    slices = [
        whole | {"start": start} | {key: whole[key][start : start + 2] for key in batches.TOKENS}
        for start in (4, 0, 2)
    ]
    folder = write(slices[0], name="taps/batches-0.jsonl").parent
    write(*slices[1:], name="taps/batches-1.jsonl")
    assert contents(batches.read([folder])[1]) == BOTH


def test_every_negative_label_means_that_nothing_is_trained(write: Write, row: Row) -> None:
    labels = [6, 7, -1, -100, 10, -1]
    assert contents(batches.read([write(row(labels=labels))])[1]) == BOTH


def test_the_digest_is_of_the_documents_of_each_step(write: Write, row: Row) -> None:
    one = batches.read([write(row())])
    apart = batches.read([write(
        row(row="a", input_ids=[8, 9, 10], labels=[-100, 10, -100], position_ids=[0, 1, 2]),
        row(row="b", input_ids=[5, 6, 7], labels=[6, 7, -100], position_ids=[0, 1, 2]),
    )])  # fmt: skip
    other = batches.read([write(row(labels=[6, 7, -100, 9, 10, -100]))])
    assert batches.digest(one) == batches.digest(apart) != batches.digest(other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "lacks labels; see docs/oracle.md"),
        ({"labels": [6, 7]}, "lengths differ"),
        ({"input_ids": "text"}, "input_ids is not a list of integers"),
        ({"labels": [6.0, 7, -100, -100, 10, -100]}, "labels is not a list of integers"),
        ({"step": 0}, "step=0 must be an integer from 1 on"),
        ({"step": 2}, "needs every step from 1 on"),
        ({"labels_of": "previous"}, "labels_of must be one of next_token, token"),
        ({"position_ids": None}, "needs position_ids or document_lengths"),
        ({"position_ids": [3, 4, 5, 0, 1, 2]}, "position_ids do not begin with 0"),
        ({"position_ids": None, "document_lengths": [3, 2]}, "document_lengths sum to 5"),
        ({"padding": 3}, "a token of the padding is trained on"),
        ({"start": 2}, "a slice starts at 2, but 0 tokens come before it"),
    ],
)
def test_a_row_that_is_none_is_refused(
    changes: dict[str, Any], message: str, write: Write, row: Row
) -> None:
    with pytest.raises(OracleError, match=message):
        batches.read([write(row(**changes))])


def test_two_rows_of_one_name_are_refused(write: Write, row: Row) -> None:
    with pytest.raises(OracleError, match="rows of several ranks need different names"):
        batches.read([write(row(), row())])


def test_a_line_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "batches.jsonl"
    path.write_text('{"step": 1, "input', encoding="utf-8")
    with pytest.raises(OracleError, match=r"batches\.jsonl:1 is not JSON; was the trainer killed"):
        batches.read([path])


def test_a_folder_without_batches_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match=r"has no \*\.jsonl file; did the trainer call"):
        batches.read([tmp_path])
    with pytest.raises(OracleError, match="cannot be read"):
        batches.read([tmp_path / "none.jsonl"])


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), min_size=1, max_size=5))
def test_documents_come_out_as_they_were_packed(documents: list[list[int]]) -> None:
    row = {
        "step": 1,
        "input_ids": [token for document in documents for token in document],
        "labels": [t for d in documents for t in [*d[1:], -100]],
        "position_ids": [place for document in documents for place in range(len(document))],
        "padding": 0,
    }
    cut = list(batches.documents(row, "0"))
    assert [list(document.tokens) for document in cut] == documents
    assert [list(document.targets) for document in cut] == [[*d[1:], -100] for d in documents]
