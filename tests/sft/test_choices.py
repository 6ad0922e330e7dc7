"""The fingerprint of choices sees one that differs, and not in which order or where it was made."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from sft.context import choices
from sft.context.sequence import Sequence, computing, document_ids
from sft.report import counters

POSITIONS = torch.tensor([[0, 1, 2, 0, 1, 2]])
TOKENS = torch.tensor([[5, 6, 7, 5, 6, 9]])
SEQUENCE = Sequence(POSITIONS, document_ids(POSITIONS), TOKENS)
CHOSEN = torch.tensor([[0, 3], [1, 2], [0, 1], [3, 2], [0, 2], [1, 3]])


@pytest.fixture(autouse=True)
def _no_counts_of_others() -> None:
    counters.take()


def fingerprint(chosen: Tensor, tokens: Tensor) -> float:
    numbers = choices.number(chosen).sum(1).double()
    torch.ops.sft.note_choices(torch.zeros(len(chosen), 2), numbers, tokens)
    return counters.take()[choices.NAME]


def test_the_order_of_a_tokens_experts_does_not_matter_but_which_they_are_does() -> None:
    tokens = choices.tokens(SEQUENCE)
    noted = fingerprint(CHOSEN, tokens)
    assert fingerprint(CHOSEN.flip(1), tokens) == noted
    changed = CHOSEN.clone()
    changed[4, 1] = 3
    assert fingerprint(changed, tokens) != noted


def test_shares_of_ranks_add_up_to_the_whole() -> None:
    tokens = choices.tokens(SEQUENCE)
    shares = [fingerprint(CHOSEN[part], tokens[part]) for part in (slice(0, 2), slice(2, 6))]
    assert sum(shares) == fingerprint(CHOSEN, tokens)


def test_two_tokens_that_trade_their_experts_are_seen() -> None:
    traded = CHOSEN[[1, 0, 2, 3, 4, 5]]
    tokens = choices.tokens(SEQUENCE)
    assert fingerprint(traded, tokens) != fingerprint(CHOSEN, tokens)


def picks_noted(sequence: Sequence, picked: Tensor) -> float:
    choices.noted(torch.zeros(1, 6), sequence, picked, sequence.position_ids)
    return counters.take()[choices.NAME]


def test_picks_of_an_indexer_are_noted_by_candidate() -> None:
    picked = torch.eye(6, dtype=torch.bool)[None]
    first = picks_noted(SEQUENCE, picked)
    other = picked.clone()
    other[0, 5] = torch.tensor([0, 0, 0, 1, 0, 0])
    assert picks_noted(SEQUENCE, other) != first


def test_what_padding_chooses_counts_for_nothing() -> None:
    padding = POSITIONS[0] < -1
    padding[4:] = True
    padded = Sequence(POSITIONS, document_ids(POSITIONS), TOKENS, padding=padding[None])
    changed = CHOSEN.clone()
    changed[5, 1] = 0
    marks = [fingerprint(chosen, choices.tokens(padded)) for chosen in (CHOSEN, changed)]
    assert marks[0] == marks[1] != 0


def test_picks_of_a_document_are_the_same_alone_as_in_a_row() -> None:
    picked = torch.block_diag(*[torch.ones(3, 3).tril()] * 2).bool()[None]
    alone = 0.0
    for part in (slice(0, 3), slice(3, 6)):
        positions = POSITIONS[:, part]
        document = Sequence(positions, document_ids(positions), TOKENS[:, part])
        alone += picks_noted(document, picked[:, part, part])
    assert alone == picks_noted(SEQUENCE, picked)


class Experts(nn.Module):
    def forward(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return hidden * weights


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleDict({"experts": Experts()})

    def forward(self, hidden: Tensor) -> Tensor:
        return self.layer["experts"](hidden, CHOSEN, torch.ones(6, 1))


def test_experts_are_watched_once_a_step_also_where_layers_are_computed_again() -> None:
    model, hidden = Model(), torch.ones(6, 2, requires_grad=True)
    assert choices.watch_experts(model) == 1
    with computing(SEQUENCE):
        checkpoint(model, hidden, use_reentrant=False).sum().backward()
    assert counters.take()[choices.NAME] == fingerprint(CHOSEN, choices.tokens(SEQUENCE))
    assert torch.equal(hidden.grad, torch.ones(6, 2))


def test_a_model_on_its_own_is_left_as_it_is() -> None:
    model = Model()
    choices.watch_experts(model)
    assert torch.equal(model(torch.ones(6, 2)), torch.ones(6, 2))
    assert choices.NAME not in counters.take()
