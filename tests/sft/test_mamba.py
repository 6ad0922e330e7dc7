"""Mamba2: packed documents compute what each computes alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers.models.nemotron_h import modeling_nemotron_h as modeling

from sft.context import mamba
from sft.context.sequence import Sequence, computing
from tests.sft.packs import Inputs, assert_same, each_alone, operators, pack

LENGTHS = (1, 15, 32, 5, 70, 2)
CHUNK = 16
HEADS, GROUPS = 4, 2


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("mamba2_chunk_scan", "mamba2_split_conv1d_scan_combined"):
            patch.setattr(modeling, name, getattr(modeling, name))  # put back at the end
        mamba.install(modeling)
        yield


def scan_inputs(
    length: int, dtype: torch.dtype = torch.float32, seed: int = 0
) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    inputs = {
        "hidden_states": torch.randn(1, length, HEADS, 8, dtype=dtype),
        "dt": torch.randn(1, length, HEADS, dtype=dtype),
        "B": torch.randn(1, length, GROUPS, 6, dtype=dtype),
        "C": torch.randn(1, length, GROUPS, 6, dtype=dtype),
    }
    return {name: x.requires_grad_() for name, x in inputs.items()}


def parameters(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    torch.manual_seed(7)
    decays = {"A": -torch.rand(HEADS, dtype=dtype) - 0.1}
    rest = {name: torch.randn(HEADS, dtype=dtype) for name in ("D", "dt_bias")}
    return {name: x.requires_grad_() for name, x in (decays | rest).items()}


def scan_with(weights: Inputs, **inputs: Tensor) -> Tensor:
    out = modeling.mamba2_chunk_scan(
        **inputs, **weights, chunk_size=CHUNK, dt_softplus=True, dt_limit=(0.01, float("inf"))
    )
    assert isinstance(out, Tensor)
    return out


def scan_in(sequence: Sequence, weights: Inputs, inputs: Inputs) -> Tensor:
    with computing(sequence):
        return scan_with(weights, **inputs)


@pytest.mark.parametrize("lengths", [LENGTHS, (sum(LENGTHS),)], ids=["packed", "one document"])
def test_a_pack_computes_what_transformers_computes_for_each_document(
    lengths: tuple[int, ...],
) -> None:
    inputs, weights = scan_inputs(sum(lengths)), parameters()
    ours = scan_in(pack(lengths), weights, inputs)
    theirs = each_alone(lambda **part: scan_with(weights, **part), lengths, 1, inputs)
    assert_same(ours, theirs, inputs | weights, 1e-5)


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=6).map(tuple))
def test_any_pack_computes_what_its_documents_compute_alone(lengths: tuple[int, ...]) -> None:
    inputs, weights = scan_inputs(sum(lengths), torch.float64), parameters(torch.float64)

    def alone(**part: Tensor) -> Tensor:
        return scan_in(pack((part["dt"].shape[1],)), weights, part)

    packed = scan_in(pack(lengths), weights, inputs)
    assert_same(packed, each_alone(alone, lengths, 1, inputs), inputs | weights, 1e-11)


def test_nothing_of_a_document_reaches_the_next() -> None:
    lengths, second = (21, 40), slice(21, None)
    inputs, other, weights = scan_inputs(61), scan_inputs(61, seed=1), parameters()
    changed = {
        name: torch.cat([100 * other[name][:, :21], x[:, second]], 1) for name, x in inputs.items()
    }
    before, after = (scan_in(pack(lengths), weights, x)[:, second] for x in (inputs, changed))
    assert torch.equal(before, after)


def test_a_long_sequence_is_no_larger_a_graph_to_compile_than_a_short_one() -> None:
    weights = parameters()

    def graph(length: int) -> int:
        with computing(pack((length - 10, 10))):
            return operators(lambda **part: scan_with(weights, **part), scan_inputs(length))

    assert graph(length=10 * CHUNK) == graph(length=2 * CHUNK)


def test_the_fused_kernel_steps_aside_for_a_sequence() -> None:
    with computing(pack((8,))):
        assert modeling.mamba2_split_conv1d_scan_combined(torch.zeros(1, 8, 4)) is None


def test_a_cache_is_refused() -> None:
    with computing(pack((8,))), pytest.raises(ValueError, match="use_cache=False"):
        modeling.mamba2_chunk_scan(
            **scan_inputs(8), **parameters(), chunk_size=CHUNK, return_final_states=True
        )
