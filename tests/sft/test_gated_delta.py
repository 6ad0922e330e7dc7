"""Gated delta net and its convolution: packed documents compute what each computes alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.qwen3_5 import modeling_qwen3_5 as modeling

from sft.context import convolution, gated_delta, mamba
from sft.context.recurrence import states_at_start
from sft.context.sequence import Sequence, computing
from tests.sft.packs import Inputs, assert_same, each_alone, operators, pack

LENGTHS = (1, 15, 32, 5, 70, 2)  # ends on and off the chunks' edges; documents of many chunks
CHUNK = 16


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("torch_chunk_gated_delta_rule", "causal_conv1d_fn"):
            patch.setattr(modeling, name, getattr(modeling, name))  # put back at the end
        gated_delta.install(modeling)
        convolution.install(modeling)
        yield


def delta_inputs(
    length: int, dtype: torch.dtype = torch.float32, decay: float = 1.0, seed: int = 0
) -> dict[str, Tensor]:
    """Two key heads for four value heads."""
    torch.manual_seed(seed)
    inputs = {
        "query": torch.randn(1, length, 2, 8, dtype=dtype),
        "key": torch.randn(1, length, 2, 8, dtype=dtype),
        "value": torch.randn(1, length, 4, 12, dtype=dtype),
        "g": -torch.rand(1, length, 4, dtype=dtype) * decay,
        "beta": torch.rand(1, length, 4, dtype=dtype),
    }
    return {name: x.requires_grad_() for name, x in inputs.items()}


def delta_rule(**inputs: Tensor) -> Tensor:
    out, _ = modeling.torch_chunk_gated_delta_rule(
        **inputs, chunk_size=CHUNK, use_qk_l2norm_in_kernel=True
    )
    assert isinstance(out, Tensor)
    return out


def delta_rule_in(sequence: Sequence, inputs: Inputs) -> Tensor:
    with computing(sequence):
        return delta_rule(**inputs)


@pytest.mark.parametrize("lengths", [LENGTHS, (sum(LENGTHS),)], ids=["packed", "one document"])
def test_a_pack_computes_what_transformers_computes_for_each_document(
    lengths: tuple[int, ...],
) -> None:
    inputs = delta_inputs(sum(lengths))
    ours = delta_rule_in(pack(lengths), inputs)
    theirs = each_alone(delta_rule, lengths, 1, inputs)
    assert_same(ours, theirs, inputs, 1e-5)


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=6).map(tuple))
def test_any_pack_computes_what_its_documents_compute_alone(lengths: tuple[int, ...]) -> None:
    inputs = delta_inputs(sum(lengths), torch.float64)

    def alone(**part: Tensor) -> Tensor:
        return delta_rule_in(pack((part["g"].shape[1],)), part)

    packed = delta_rule_in(pack(lengths), inputs)
    assert_same(packed, each_alone(alone, lengths, 1, inputs), inputs, 1e-11)


def test_not_even_the_rounding_of_a_strongly_decaying_document_reaches_the_next() -> None:
    lengths, second = (21, 40), slice(21, None)
    inputs, other = delta_inputs(61), delta_inputs(61, decay=300.0, seed=1)
    changed = {
        name: torch.cat([other[name][:, :21], x[:, second]], 1) for name, x in inputs.items()
    }
    before, after = (delta_rule_in(pack(lengths), x)[:, second] for x in (inputs, changed))
    assert torch.equal(before, after)


def test_a_long_sequence_is_no_larger_a_graph_to_compile_than_a_short_one() -> None:
    def graph(length: int) -> int:
        with computing(pack((length - 10, 10))):
            return operators(delta_rule, delta_inputs(length))

    assert graph(length=10 * CHUNK) == graph(length=2 * CHUNK)


@pytest.mark.slow
def test_the_operator_between_chunks_is_what_torch_asks_of_operators() -> None:
    torch.manual_seed(0)
    matrices = torch.randn(2, 2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    added = torch.randn(2, 2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.sft.states_at_start, (matrices.mT, added))
    torch.autograd.gradcheck(states_at_start, (matrices, added))


def test_a_cache_is_refused() -> None:
    with computing(pack((8,))), pytest.raises(ValueError, match="use_cache=False"):
        modeling.torch_chunk_gated_delta_rule(**delta_inputs(8), output_final_state=True)


@pytest.mark.parametrize("activation", [None, "silu"])
def test_the_convolution_computes_what_transformers_computes_for_each_document(
    activation: str | None,
) -> None:
    torch.manual_seed(0)
    weight, bias = torch.randn(6, 4, requires_grad=True), torch.randn(6, requires_grad=True)
    inputs = {"hidden_states": torch.randn(1, 6, sum(LENGTHS), requires_grad=True)}

    def convolve(hidden_states: Tensor) -> Tensor:
        out = modeling.causal_conv1d_fn(hidden_states, weight, bias, activation=activation)
        assert isinstance(out, Tensor)
        return out

    with computing(pack(LENGTHS)):
        ours = convolve(**inputs)
    theirs = each_alone(convolve, LENGTHS, 2, inputs)
    assert_same(ours, theirs, inputs | {"weight": weight, "bias": bias}, 1e-5)


def test_outside_of_a_sequence_transformers_serves_with_its_cache() -> None:
    out, state = modeling.torch_chunk_gated_delta_rule(**delta_inputs(8), output_final_state=True)
    assert out.shape == (1, 8, 4, 12)
    assert state.shape == (1, 4, 8, 12)


def test_installing_twice_replaces_once() -> None:
    before = modeling.torch_chunk_gated_delta_rule
    assert gated_delta.install(modeling) == ["torch_chunk_gated_delta_rule"]
    assert modeling.torch_chunk_gated_delta_rule is before
    assert mamba.install(modeling) == []
