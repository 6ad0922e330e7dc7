"""What flash-linear-attention is given: documents laid end to end, and where each begins.

Its kernels need a GPU. On a CPU a function with its signature stands in, which refuses what it
refuses and computes each document alone, by transformers' own rule.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from transformers import PreTrainedModel
from transformers.models.qwen3_5.modeling_qwen3_5 import torch_chunk_gated_delta_rule

from sft import config as configuration
from sft import kernels, loop, model
from sft.config import Config, DataConfig, MemoryConfig, ModelConfig
from sft.context import fla
from sft.context.gated_delta import chunk_gated_delta_rule
from sft.context.sequence import Sequence, computing, document_ids
from sft.errors import ConfigError, UnfitError
from sft.loop import Trainer
from sft.memory.apply import decoder_layers
from sft.ranks import Ranks, pick_device
from sft.report import counters
from sft.report.metrics import Record
from tests.sft.packs import assert_same, pack

LENGTHS = ((70, 1, 29), (100,))


def stand_in(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> tuple[Tensor, None]:
    """fla.ops.gated_delta_rule.chunk_gated_delta_rule, by the arguments that it is given."""
    assert cu_seqlens is not None
    assert q.shape == k.shape
    assert q.shape[0] == 1, "variable lengths are flattened"
    assert v.shape[2] % q.shape[2] == 0, "value heads share key heads"
    assert g.dtype == torch.float32
    q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], dim=2) for x in (q, k))
    inputs = (x.split(cu_seqlens.diff().tolist(), dim=1) for x in (q, k, v, g, beta))
    rule = torch_chunk_gated_delta_rule.__wrapped__
    out = [
        rule(*document, use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel)[0]
        for document in zip(*inputs, strict=True)
    ]
    return torch.cat(out, dim=1), None


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package, as far as it is imported."""
    for name in ("fla", "fla.ops", "fla.ops.gated_delta_rule"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(
        sys.modules["fla.ops.gated_delta_rule"], "chunk_gated_delta_rule", stand_in, raising=False
    )


def rows(uses_fla: bool, tokens: Tensor | None = None) -> Sequence:
    positions = torch.cat([pack(lengths).position_ids for lengths in LENGTHS])
    tokens = positions if tokens is None else tokens
    return Sequence(positions, document_ids(positions), tokens, fla=uses_fla)


def test_documents_begin_where_rows_and_positions_do() -> None:
    assert rows(True).cu_seqlens.tolist() == [0, 70, 71, 100, 200]


@pytest.mark.usefixtures("package", "one_thread")
@pytest.mark.parametrize("key_heads", [2, 4])
def test_values_and_gradients_are_those_of_torch(key_heads: int) -> None:
    torch.manual_seed(0)
    heads = {"query": key_heads, "key": key_heads, "value": 4}
    inputs = {name: torch.randn(2, 100, count, 8) for name, count in heads.items()}
    inputs |= {"g": -torch.randn(2, 100, 4).abs(), "beta": torch.rand(2, 100, 4)}
    for x in inputs.values():
        x.requires_grad_()
    outs = []
    for uses_fla in (True, False):
        with computing(rows(uses_fla)) as sequence:
            outs.append(chunk_gated_delta_rule(sequence, **inputs, use_qk_l2norm_in_kernel=True)[0])
    assert_same(*outs, inputs, 1e-4)


def load(path: Path) -> PreTrainedModel:
    return model.load(Config(model=ModelConfig(path=str(path), linear_attention="fla")))


@torch.no_grad()
def logits(loaded: PreTrainedModel, uses_fla: bool) -> Tensor:
    tokens = torch.randint(5, 2000, (2, 100), generator=torch.Generator().manual_seed(0))
    with computing(rows(uses_fla, tokens)) as sequence:
        out: Tensor = loaded(
            input_ids=tokens, position_ids=sequence.position_ids, use_cache=False
        ).logits
    return out


@pytest.mark.usefixtures("package", "one_thread")
def test_each_layer_of_a_model_calls_it_and_logits_are_those_of_torch(
    checkpoint: Callable[[str], Path],
) -> None:
    loaded = load(checkpoint("qwen3_5_dense"))
    counters.take()
    expected = logits(loaded, uses_fla=False)
    assert fla.COUNTER not in counters.take()
    found = logits(loaded, uses_fla=True)
    delta_nets = sum(hasattr(layer, "linear_attn") for layer in decoder_layers(loaded))
    assert counters.take()[fla.COUNTER] == delta_nets > 0
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("package", "one_thread")
def test_a_compiled_layer_breaks_at_the_package_alone(checkpoint: Callable[[str], Path]) -> None:
    loaded, graphs = load(checkpoint("qwen3_5_dense")), CompileCounter()
    layer = next(one for one in decoder_layers(loaded) if hasattr(one, "linear_attn"))
    layer.forward = torch.compile(layer.forward, backend=graphs)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    logits(loaded, uses_fla=True)
    [reason] = torch._dynamo.utils.counters["graph_break"]
    assert "flash-linear-attention is not put into graphs" in reason
    torch._dynamo.reset()


def test_a_model_without_such_a_layer_is_refused(checkpoint: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError, match=r"llama has no gated delta net; use model\.linear_att"):
        load(checkpoint("llama"))


def test_a_device_without_its_kernels_is_refused() -> None:
    asked = ModelConfig(linear_attention="fla")
    with pytest.raises(UnfitError, match=r"need a GPU; use model\.linear_attention=torch"):
        kernels.check_device(asked, "cpu")
    kernels.check_device(asked, "cuda")


def test_the_package_is_asked_for_where_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(configuration, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="pip install flash-linear-attention"):
        configuration.check(Config(model=ModelConfig(linear_attention="fla")))
    monkeypatch.setattr(configuration, "find_spec", lambda name: ModuleSpec(name, None))
    configuration.check(Config(model=ModelConfig(linear_attention="fla")))


def first_step(path: Path, linear_attention: str, memory: MemoryConfig, dtype: str) -> Record:
    data = DataConfig(seq_len=256, global_batch=2, micro_batch=2)
    asked = ModelConfig(str(path), dtype, linear_attention=linear_attention)
    trainer = Trainer(Config(model=asked, data=data, memory=memory), Ranks(0, 1, pick_device()))
    batch = next(iter(trainer.loader))
    return trainer.train_step({key: x.to(trainer.ranks.device) for key, x in batch.items()})


@pytest.mark.usefixtures("package", "one_thread")
def test_a_step_says_how_often_it_was_called_and_trains_as_torch_does(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "check_device", lambda *_: None)  # the stand-in needs no GPU
    path, memory = checkpoint("qwen3_5_dense"), MemoryConfig(ac="full")
    found, expected = (first_step(path, name, memory, "float32") for name in ("fla", "torch"))
    assert found["counters"][fla.COUNTER][0] > 0
    assert expected["counters"][fla.COUNTER] == [0]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    for group, norm in expected["grad_norm_groups"].items():
        assert found["grad_norm_groups"][group] == pytest.approx(norm, rel=1e-4), group


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or find_spec("fla") is None,
    reason="needs a CUDA device and flash-linear-attention",
)
@pytest.mark.parametrize(
    "memory", [MemoryConfig(), MemoryConfig(compile=True, ac="full", act_offload=True)]
)
def test_gradients_of_its_kernels_are_those_of_torch(
    checkpoint: Callable[[str], Path], memory: MemoryConfig
) -> None:
    path = checkpoint("qwen3_5_dense")
    found, expected = (first_step(path, name, memory, "bfloat16") for name in ("fla", "torch"))
    assert found["counters"][fla.COUNTER][0] > 0
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-2)
    for group, norm in expected["grad_norm_groups"].items():
        assert found["grad_norm_groups"][group] == pytest.approx(norm, rel=0.1), group
