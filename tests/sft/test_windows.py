"""Windows of a packed row are those of its documents."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from sft.context import windows
from sft.context.sequence import Sequence, document_ids

Lengths = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def packed(lengths: list[int]) -> Sequence:
    positions = torch.cat([torch.arange(length) for length in lengths])[None]
    return Sequence(positions, document_ids(positions), positions)


@given(lengths=Lengths, width=st.integers(1, 9))
def test_each_document_is_cut_from_its_own_first_token(lengths: list[int], width: int) -> None:
    cut = windows.cut(packed(lengths), width)
    row = torch.arange(sum(lengths))
    wanted = [d[: len(d) // width * width].view(-1, width) for d in row.split(lengths)]
    filled = cut.documents >= 0
    assert torch.equal(cut.tokens(row[None])[filled], torch.cat(wanted))
    assert cut.documents[filled].bincount(minlength=len(lengths)).tolist() == [
        length // width for length in lengths
    ]


@given(lengths=Lengths, width=st.integers(1, 9))
def test_a_query_sees_the_windows_of_its_document_that_have_ended(
    lengths: list[int], width: int
) -> None:
    sequence = packed(lengths)
    visible = windows.cut(sequence, width).visible(sequence.position_ids, sequence.document_ids)
    assert torch.equal(visible.sum(-1), (sequence.position_ids + 1) // width)


def test_the_first_of_equal_scores_wins_and_an_invisible_one_never() -> None:
    scores = torch.tensor([[[5.0, 0.0, 3.0, 0.0, 0.0]]])
    visible = torch.tensor([[[False, True, True, True, True]]])

    def best(count: int) -> Tensor:
        return windows.best(scores, visible, count).nonzero()[:, -1]

    assert best(2).tolist() == [1, 2]
    assert best(5).tolist() == [1, 2, 3, 4]
