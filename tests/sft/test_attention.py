"""Attention: sinks, picks and windows as defined, and documents of a pack kept apart."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from sft.context import attention
from sft.context.sequence import Sequence, computing, current, document_ids

B, H, S, D = 2, 4, 6, 8


def heads(seed: int, count: int = H) -> Tensor:
    return torch.randn(B, count, S, D, generator=torch.Generator().manual_seed(seed))


CAUSAL = torch.ones(S, S, dtype=torch.bool).tril().expand(B, 1, S, S)


def test_sinks_take_probability_and_add_no_value() -> None:
    query, key, value = heads(0), heads(1), heads(2)
    sinks = torch.linspace(-1.0, 2.0, H)
    out = attention.attend(query, key, value, CAUSAL, None, 0.0, sinks)
    scores = (query @ key.mT / math.sqrt(D)).masked_fill(~CAUSAL, -torch.inf).exp()
    expected = scores @ value / (scores.sum(-1, keepdim=True) + sinks.exp().view(1, H, 1, 1))
    torch.testing.assert_close(out, expected)


def test_a_sink_learns() -> None:
    sinks = torch.zeros(H, requires_grad=True)
    attention.attend(heads(0), heads(1), heads(2), CAUSAL, None, 0.0, sinks).sum().backward()
    assert sinks.grad is not None
    assert (sinks.grad != 0).all()


def test_few_key_heads_serve_their_own_query_heads() -> None:
    query, key, value = heads(0), heads(1, 2), heads(2, 2)
    out = attention.attend(query, key, value, CAUSAL, None, 0.0, None)
    repeated = [x.repeat_interleave(H // 2, dim=1) for x in (key, value)]
    torch.testing.assert_close(out, attention.attend(query, *repeated, CAUSAL, None, 0.0, None))


@pytest.mark.parametrize("key_heads", [H, 2])
def test_a_number_of_heads_that_the_compiler_has_as_a_symbol_breaks_no_graph(
    key_heads: int,
) -> None:
    # nemotron_h on two GPUs: its mixers differ, so that torch 2.11 took their heads for dynamic
    query, key = heads(0), heads(1, key_heads)
    torch._dynamo.mark_dynamic(query, 1)
    torch._dynamo.mark_dynamic(key, 1)

    def attend(query: Tensor, key: Tensor) -> Tensor:
        return attention.attend(query, key, key, CAUSAL, None, 0.0, None)

    compiled = torch.compile(attend, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(query, key), attend(query, key))


def test_picks_narrow_a_mask_and_never_widen_it() -> None:
    picks = torch.tensor([0, 5]).expand(B, S, 2)
    kept = attention.keep_picks(CAUSAL, picks)
    expected = torch.zeros(S, S, dtype=torch.bool)
    expected[:, 0] = True
    expected[5, 5] = True
    assert torch.equal(kept, expected.expand(B, 1, S, S))


def test_documents_are_counted_where_positions_restart() -> None:
    positions = torch.tensor([[0, 1, 2, 0, 1, 0]])
    assert document_ids(positions).tolist() == [[0, 0, 0, 1, 1, 2]]


def test_a_sequence_is_current_only_while_it_is_computed() -> None:
    tokens = torch.zeros(1, 4, dtype=torch.long)
    sequence = Sequence(tokens, tokens, tokens)
    with pytest.raises(RuntimeError, match="computing"):
        current()
    with computing(sequence):
        assert current() is sequence
        assert sequence.local(tokens) is not None
    with pytest.raises(RuntimeError, match="computing"):
        current()
