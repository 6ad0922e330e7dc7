"""Memory features compute what no feature computes, and show by counters that they were on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from sft import loop
from sft.config import Config, DataConfig, MemoryConfig, ModelConfig, OptimConfig
from sft.loop import Trainer
from sft.memory import apply, checkpointing, compiling, offloading
from sft.ranks import Ranks
from sft.report import counters

STEPS, ROWS, SEQ = 2, 2, 128
CPU = torch.device("cpu")
Records = list[dict[str, Any]]
Train = Callable[..., Records]

EFFECTS = [
    ({"ac": "full"}, {"recomputed_layers"}),
    ({"ac": "selective"}, {"recomputed_layers", "operators_kept"}),
    ({"act_offload": True}, {"act_offload_bytes"}),
    ({"ac": "full", "act_offload": True}, {"recomputed_layers", "act_offload_bytes"}),
    ({"optim_offload": True}, {"optim_offload_bytes"}),
    ({"compile": True, "fullgraph": True}, {"graphs_captured"}),
]


@pytest.fixture(scope="module")
def train(checkpoint: Callable[[str], Path]) -> Train:
    """A function from memory settings to the records of a short run of qwen3_moe."""
    threads = torch.get_num_threads()

    def run(**memory: Any) -> Records:
        torch._dynamo.reset()
        counters.take()
        torch.set_num_threads(1)
        settings = Config(
            model=ModelConfig(str(checkpoint("qwen3_moe"))),
            data=DataConfig(seq_len=SEQ, global_batch=ROWS),
            optim=OptimConfig(lr=1e-3),
            memory=MemoryConfig(**memory),
        )
        trainer = Trainer(settings, Ranks(0, 1, CPU))
        batches = iter(trainer.loader)
        records = [trainer.train_step(next(batches)) for _ in range(STEPS)]
        torch.set_num_threads(threads)
        return records

    return run


@pytest.fixture(scope="module")
def plain(train: Train) -> Records:
    """The same run with no feature on."""
    return train()


def total(records: Records, counter: str) -> float:
    return sum(record["counters"].get(counter, [0])[0] for record in records)


def shown(records: Records) -> set[str]:
    """The effects that a run's counters show."""
    every = set().union(*(effects for _, effects in EFFECTS))
    return {name for name in every if total(records, name)}


def assert_same(records: Records, expected: Records) -> None:
    for record, other in zip(records, expected, strict=True):
        for key in ("loss", "grad_norm"):
            assert record[key] == pytest.approx(other[key], rel=1e-6)


@pytest.mark.parametrize(("memory", "effects"), EFFECTS)
def test_a_feature_changes_no_loss_and_shows_its_effect_and_no_other(
    train: Train, plain: Records, memory: dict[str, Any], effects: set[str]
) -> None:
    records = train(**memory)
    assert_same(records, plain)
    assert shown(records) == effects


@pytest.mark.slow
def test_selective_checkpointing_compiles_and_changes_no_loss(train: Train, plain: Records) -> None:
    records = train(compile=True, fullgraph=True, ac="selective", act_offload=True)
    assert_same(records, plain)
    assert shown(records) == {
        "recomputed_layers",
        "operators_kept",
        "graphs_captured",
        "act_offload_bytes",
    }
    assert total(records, "graph_breaks") == 0


def test_nothing_is_shown_when_nothing_is_on(plain: Records) -> None:
    assert shown(plain) == set()


def test_every_layer_of_every_row_is_computed_again(train: Train) -> None:
    records = train(ac="full")
    layers = total(records[:1], "recomputed_layers")
    assert layers == ROWS * 2, "the nano qwen3_moe has two layers"


SABOTAGE: list[tuple[dict[str, Any], object, str, Callable[..., Any], str]] = [
    (
        {"ac": "full"},
        checkpointing,
        "checkpointed",
        lambda forward, selective: forward,
        "recomputed_layers",
    ),
    (
        {"act_offload": True},
        offloading,
        "offloaded",
        lambda layer, forward, device: forward,
        "act_offload_bytes",
    ),
    (
        {"optim_offload": True},
        offloading,
        "keep_on_cpu",
        lambda optimizer, device: None,
        "optim_offload_bytes",
    ),
    (
        {"compile": True},
        torch,
        "compile",
        lambda forward, **options: forward,
        "graphs_captured",
    ),
]


@pytest.mark.parametrize(("memory", "owner", "name", "nothing", "counter"), SABOTAGE)
def test_a_feature_that_silently_does_nothing_counts_nothing(
    train: Train,
    monkeypatch: pytest.MonkeyPatch,
    memory: dict[str, Any],
    owner: object,
    name: str,
    nothing: Callable[..., Any],
    counter: str,
) -> None:
    monkeypatch.setattr(owner, name, nothing)
    assert total(train(**memory), counter) == 0


class Layer(nn.Module):
    """Stands for a decoder layer, with dropout, and a Python branch where one is asked for."""

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.breaks = breaks

    def forward(self, hidden_states: Tensor, scale: float = 1.0) -> Tensor:
        hidden_states = nn.functional.dropout(self.linear(hidden_states), 0.5)
        if self.breaks and hidden_states.sum() > 0:  # depends on data: the graph breaks here
            hidden_states = hidden_states * 2
        return hidden_states * scale


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    compiling.count_graphs()
    counters.take()
    config = torch._dynamo.config
    with config.patch(recompile_limit=8, fail_on_recompile_limit_hit=False):
        yield


def forward_of(layer: Layer, **memory: Any) -> Callable[..., Any]:
    return apply.prepared(layer, MemoryConfig(**memory), CPU)


def compiler_counts() -> dict[str, float]:
    compiling.count_graphs()
    return counters.take()


@pytest.mark.usefixtures("fresh_compiler")
def test_a_planted_break_is_counted() -> None:
    forward_of(Layer(breaks=True), compile=True)(torch.ones(2, 8))
    assert compiler_counts()["graph_breaks"] == 1


@pytest.mark.usefixtures("fresh_compiler")
def test_with_fullgraph_a_break_is_an_error() -> None:
    forward = forward_of(Layer(breaks=True), compile=True, fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        forward(torch.ones(2, 8))


@pytest.mark.usefixtures("fresh_compiler")
def test_compiling_for_another_argument_is_counted_as_a_recompile() -> None:
    forward = forward_of(Layer(), compile=True)
    for flag in (True, False):
        forward(torch.ones(2, 8), scale=flag)
    counts = compiler_counts()
    assert (counts["graphs_captured"], counts["recompiles"]) == (2, 1)
    assert 0 < counts["compile_seconds"] < 60


@pytest.mark.usefixtures("fresh_compiler")
def test_a_layer_is_never_left_uncompiled_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "KINDS_OF_LAYER", 1)
    forward = forward_of(Layer(), compile=True)
    forward(torch.ones(2, 8), scale=True)
    with pytest.raises(torch._dynamo.exc.FailOnRecompileLimitHit):
        forward(torch.ones(2, 8), scale=False)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("ac", ["full", "selective"])
def test_recomputation_draws_the_same_dropout(ac: str, compiled: bool) -> None:
    layer, x = Layer(), torch.randn(4, 8)
    gradients = []
    for memory in ({"ac": "none"}, {"ac": ac, "compile": compiled}):
        torch.manual_seed(0)
        layer.zero_grad()
        out = forward_of(layer, **memory)(x.clone().requires_grad_())
        torch.manual_seed(1)  # the generator has moved on when backward comes
        out.square().sum().backward()
        assert layer.linear.weight.grad is not None
        gradients.append(layer.linear.weight.grad.clone())
    torch.testing.assert_close(*gradients)
    assert counters.take()["recomputed_layers"] == 1


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("backend", [None, "eager", "aot_eager"])
def test_activations_are_offloaded_and_neither_weights_nor_what_layers_share(
    monkeypatch: pytest.MonkeyPatch, backend: str | None
) -> None:
    monkeypatch.setattr(compiling, "backend", lambda memory, device: backend)
    linear = nn.Linear(8, 8, bias=False)
    linear.forward = lambda x, scale: (x @ linear.weight.t()) * scale  # type: ignore[method-assign]
    forward = apply.prepared(
        linear, MemoryConfig(act_offload=True, compile=backend is not None), CPU
    )
    forward(torch.ones(2, 8, requires_grad=True) * 1, scale=torch.ones(2, 8)).sum().backward()
    assert counters.take()["act_offload_bytes"] == 2 * 8 * 4, "the input, once"


def test_states_are_on_the_cpu_when_a_step_is_over_and_still_train() -> None:
    models = [nn.Linear(4, 4) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.1) for model in models]
    offloading.keep_on_cpu(optimizers[1], CPU)
    counters.take()
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            model(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(models[1].weight, models[0].weight)
    moments_and_steps = 2 * (4 * 4 + 4) + 2
    assert counters.take()["optim_offload_bytes"] == 3 * 4 * moments_and_steps


def test_what_no_rank_counted_is_reported_as_zero_so_that_it_is_seen() -> None:
    counts = loop.by_rank([{"act_offload_bytes": 4.0}, {"recompiles": 1.0}])
    assert counts["cp_bytes_exchanged"] == [0, 0]
    assert (counts["act_offload_bytes"], counts["recompiles"]) == ([4.0, 0], [0, 1.0])


INDUCTOR = """
import json, torch
from sft.report import counters
from sft.config import MemoryConfig
from sft.memory import compiling
memory = MemoryConfig(compile=True, compile_backend="inductor")
forward = compiling.compiled(torch.nn.Linear(4, 4).forward, memory, torch.device("cpu"))
forward(torch.ones(2, 4)).sum().backward()
compiling.count_graphs()
print(json.dumps(counters.take()))
"""


@pytest.mark.slow
def test_what_one_process_compiled_no_other_compiles_again(tmp_path: Path) -> None:
    env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    counts = []
    for _ in range(2):
        argv = [sys.executable, "-c", INDUCTOR]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True)
        counts.append(json.loads(done.stdout))
    found = [(one["compile_cache_hits"], one["compile_cache_misses"]) for one in counts]
    assert found == [(0, 2), (2, 0)]  # the forward and the backward graph


@given(st.permutations(range(4)))
def test_activations_come_back_as_they_lay_in_memory(order: list[int]) -> None:
    saved = torch.rand(2, 3, 4, 5).permute(order)
    with pytest.MonkeyPatch.context() as patch:  # as copies to pinned memory are made
        patch.setattr(Tensor, "cpu", lambda x: x.clone(memory_format=torch.contiguous_format))
        hooks = offloading.ActivationsOnCPU(CPU, set())
        back = hooks.unpack_hook(hooks.pack_hook(saved))
    assert torch.equal(back, saved)
    assert back.stride() == saved.stride()
