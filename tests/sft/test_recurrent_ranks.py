"""Recurrent layers shared by four ranks compute what one process computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from sft.context.convolution import depthwise
from sft.context.gated_delta import chunk_gated_delta_rule
from sft.context.mamba import mamba2_chunk_scan
from sft.context.ngram import earlier_tokens
from sft.context.sequence import Sequence
from sft.errors import ConfigError
from tests.sft.packs import pack

RANKS = 4
LENGTHS = (30, 1, 33, 60, 4)  # a slice is 32 tokens: documents cross its edges, and end on one
LENGTH = sum(LENGTHS)

Layer = Callable[[Sequence, dict[str, Tensor], dict[str, Tensor]], Tensor]
"""(sequence, inputs that are sliced along it, parameters) -> outputs that are."""


def delta_rule(sequence: Sequence, inputs: dict[str, Tensor], _: dict[str, Tensor]) -> Tensor:
    out, _none = chunk_gated_delta_rule(
        sequence, **inputs, chunk_size=16, use_qk_l2norm_in_kernel=True
    )
    return out


def scan(sequence: Sequence, inputs: dict[str, Tensor], parameters: dict[str, Tensor]) -> Tensor:
    return mamba2_chunk_scan(sequence, **inputs, **parameters, chunk_size=16, dt_softplus=True)


def convolution(
    sequence: Sequence, inputs: dict[str, Tensor], parameters: dict[str, Tensor]
) -> Tensor:
    x = inputs["x"].transpose(1, 2)
    out = depthwise(x, parameters["weight"], sequence, dilation=3)  # reaches 9 positions back
    return out.transpose(1, 2)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def delta_case(key_heads: int, dtype: torch.dtype = torch.float64) -> tuple[dict[str, Tensor], ...]:
    heads = {"query": key_heads, "key": key_heads, "value": 8}
    inputs = {name: normal(1, LENGTH, count, 6).to(dtype) for name, count in heads.items()}
    decay = -normal(1, LENGTH, 8).abs().to(torch.promote_types(dtype, torch.float32))
    return inputs | {"g": decay, "beta": torch.rand(1, LENGTH, 8, dtype=dtype)}, {}


def scan_case(groups: int) -> tuple[dict[str, Tensor], ...]:
    states = {name: normal(1, LENGTH, groups, 6) for name in ("B", "C")}
    inputs = {"hidden_states": normal(1, LENGTH, 8, 5), "dt": normal(1, LENGTH, 8)} | states
    return inputs, {"A": -normal(8).abs(), "D": normal(8), "dt_bias": normal(8)}


def layer_gradients(
    layer: Layer, sequence: Sequence, inputs: dict[str, Tensor], parameters: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Outputs and gradients on this rank's slice; those of parameters summed over the ranks."""
    inputs = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    parameters = {name: x.clone().requires_grad_() for name, x in parameters.items()}
    out = layer(sequence, {name: sequence.local(x) for name, x in inputs.items()}, parameters)
    torch.manual_seed(5)
    weights = sequence.local(torch.randn(1, LENGTH, *out.shape[2:], dtype=out.dtype))
    (out * weights).sum().backward()
    seen = {"out": out.detach()}
    for name, x in inputs.items():
        assert x.grad is not None
        seen[name] = sequence.local(x.grad)
    for name, x in parameters.items():
        assert x.grad is not None
        seen[name] = x.grad
        if sequence.group is not None:
            dist.all_reduce(seen[name])
    return seen


def assert_agrees(
    layer: Layer,
    case: tuple[dict[str, Tensor], ...],
    group: dist.ProcessGroup,
    tolerance: float = 1e-12,
) -> None:
    inputs, parameters = case
    shared = pack(LENGTHS, group=group)
    mine = layer_gradients(layer, shared, inputs, parameters)
    whole = layer_gradients(layer, pack(LENGTHS), inputs, parameters)
    for name, value in mine.items():
        expected = whole[name] if name in parameters else shared.local(whole[name])
        assert (value - expected).abs().max() <= tolerance * whole[name].abs().max(), name


def check(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=RANKS)
    group = dist.group.WORLD
    torch.manual_seed(0)
    assert_agrees(delta_rule, delta_case(key_heads=8), group)
    assert_agrees(delta_rule, delta_case(key_heads=2), group)  # fewer than ranks: repeated
    assert_agrees(delta_rule, delta_case(key_heads=4, dtype=torch.bfloat16), group, 1e-2)
    assert_agrees(scan, scan_case(groups=4), group)
    assert_agrees(scan, scan_case(groups=2), group)
    assert_agrees(convolution, ({"x": normal(1, LENGTH, 3)}, {"weight": normal(3, 4)}), group)
    check_earlier_tokens(group)
    check_heads_that_do_not_divide(group)
    dist.destroy_process_group()


class Embedding:
    eos_token_id = 3


def check_earlier_tokens(group: dist.ProcessGroup) -> None:
    tokens = torch.randint(0, 10, (1, LENGTH))
    shared, alone = pack(LENGTHS, tokens, group), pack(LENGTHS, tokens)
    for shift in range(3):
        history = torch.zeros(1, 2 + LENGTH // RANKS)
        mine = earlier_tokens(shared, Embedding, history, shift)
        whole = earlier_tokens(alone, Embedding, torch.zeros(1, 2 + LENGTH), shift)
        assert mine.shape == history.shape
        assert torch.equal(mine[:, 2:], shared.local(whole[:, 2:]))


def check_heads_that_do_not_divide(group: dist.ProcessGroup) -> None:
    inputs = {name: x[:, :, :6] for name, x in delta_case(key_heads=6)[0].items()}
    shared = pack(LENGTHS, group=group)
    with pytest.raises(ConfigError, match=r"cp=4 does not divide .* 6 heads; use 2"):
        delta_rule(shared, {name: shared.local(x) for name, x in inputs.items()}, {})


@pytest.mark.slow
def test_four_ranks_agree_with_one_on_values_and_gradients() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.start_processes(check, args=(store.port,), nprocs=RANKS, start_method="forkserver")
