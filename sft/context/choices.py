"""Which experts and keys were chosen, as one number that is the same in every layout.

A choice between two scores that are equal but for rounding can fall differently in another layout,
and the losses part from there. Such a step is told from a fault by this number: without a
different choice, layouts must agree.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from sft.context.sequence import Sequence, active
from sft.report import counters

NAME = "choices_fingerprint"
PLACES = "choices_by_place"
BUCKETS = 256
"""Places that tokens are sorted into, so that two steps' records tell how many tokens, about, had
another choice: one where two scores were equal but for rounding, many where scores are wrong."""
PRIME = 1_048_573
"""Sums of products below its square are exact in float64."""


def watch_experts(model: nn.Module) -> int:
    """Note the experts that each token goes to, in every layer; returns how many layers there are.

    Experts are the modules that transformers calls with hidden states, choices and weights.
    """
    watched = [m for name, m in model.named_modules() if name.endswith(".experts")]
    for module in watched:
        module.register_forward_pre_hook(_note_experts)
    return len(watched)


def noted(x: Tensor, sequence: Sequence, picked: Tensor, positions: Tensor) -> Tensor:
    """`x` (a copy), with the candidates that this rank's queries picked noted.

    picked [batch, seq / n, candidates] is boolean. A candidate is known by its position in its
    document, [batch, candidates]: its place in the row is another where the document is alone.
    """
    chosen = picked.double() @ number(positions).double().unsqueeze(-1)
    return torch.ops.sft.note_choices(x, chosen.flatten(), tokens(sequence))


def number(choice: Tensor) -> Tensor:
    """A number below `PRIME` for each choice, so that sums of them tell choices apart."""
    return (choice + 1).square() % PRIME


def tokens(sequence: Sequence) -> Tensor:
    """[batch * seq / n] a number below `PRIME` for each token of this rank, by id and position.

    0 for padding: what it chooses changes nothing, and counts for nothing.
    """
    ids, positions = sequence.local(sequence.input_ids), sequence.local(sequence.position_ids)
    real = sequence.local(sequence.real)
    return ((ids * 7919 + positions * 104_729 + 1) % PRIME * real).flatten()


def _note_experts(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
    sequence = active()
    if sequence is None:
        return None
    hidden_states, chosen, *rest = inputs
    numbers = number(chosen).sum(1).double()
    noted_states = torch.ops.sft.note_choices(hidden_states, numbers, tokens(sequence))
    return noted_states, chosen, *rest


@torch.library.custom_op("sft::note_choices", mutates_args=())
def _note_choices(x: Tensor, chosen: Tensor, tokens: Tensor) -> Tensor:
    """Both [tokens]: the sum of the numbers that a token chose, and the token's own."""
    if counters.recomputing():
        return x.clone()
    marks = chosen % PRIME * tokens.double() % PRIME
    counters.add(NAME, marks.sum())
    places = marks.new_zeros(BUCKETS)
    counters.add(PLACES, places.index_add_(0, tokens % BUCKETS, marks))
    return x.clone()


counters.passes_on(_note_choices, inputs=3)
