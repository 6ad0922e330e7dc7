"""FlexAttention computes what torch's scaled dot product attention does, of every kind of mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.nn.attention import flex_attention
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import PreTrainedModel, masking_utils

from sft import kernels, model
from sft.config import Config, DataConfig, MemoryConfig, ModelConfig
from sft.context import attention, flex
from sft.context.sequence import Sequence, computing, document_ids
from sft.errors import ConfigError
from sft.loop import Trainer
from sft.memory.apply import decoder_layers
from sft.ranks import Ranks, pick_device
from sft.report import counters
from sft.report.metrics import Record
from tests.sft.packs import pack

Checkpoint = Callable[[str], Path]
LENGTHS = (150, 106)  # more than the nano models' windows
TOKENS = sum(LENGTHS)


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU torch would compile its own fallback each time, to compute the same."""
    monkeypatch.setattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.fixture
def two_ranks() -> Iterator[dist.ProcessGroup]:
    """A group of two in which nothing is sent."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def load(path: Path, kernel: str) -> PreTrainedModel:
    return model.load(Config(model=ModelConfig(path=str(path), attention=kernel)))


def rows(group: dist.ProcessGroup | None = None) -> Sequence:
    """One row of two documents and one of one."""
    positions = torch.stack([pack(lengths).position_ids[0] for lengths in (LENGTHS, (TOKENS,))])
    tokens = torch.randint(5, 2000, positions.shape, generator=torch.Generator().manual_seed(0))
    return Sequence(positions, document_ids(positions), tokens, group)


@torch.no_grad()
def logits(loaded: PreTrainedModel, sequence: Sequence) -> Tensor:
    with computing(sequence):
        out: Tensor = loaded(
            input_ids=sequence.local(sequence.input_ids),
            position_ids=sequence.local(sequence.position_ids),
            use_cache=False,
        ).logits
    return out


# causal with few key heads; sinks and windows; windows with heads of their own; latent-free MoE
@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("arch", ["llama", "gpt_oss", "laguna", "nemotron_h"])
def test_logits_are_those_of_the_other_kernel(checkpoint: Checkpoint, arch: str) -> None:
    path = checkpoint(arch)
    expected = logits(load(path, "sdpa"), rows())
    counters.take()
    found = logits(load(path, "flex"), rows())
    assert counters.take()[flex.COUNTER] >= 1
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread", "two_ranks")
def test_a_layer_of_shared_sequences_is_one_graph_for_every_pack(
    checkpoint: Checkpoint, two_ranks: dist.ProcessGroup
) -> None:
    loaded, graphs = load(checkpoint("gpt_oss"), "flex"), CompileCounter()
    layers = decoder_layers(loaded)
    torch._dynamo.reset()
    for layer in layers:
        layer.forward = torch.compile(layer.forward, backend=graphs, fullgraph=True)
    for lengths in (LENGTHS, (TOKENS,), (7, TOKENS - 7)):
        logits(loaded, pack(lengths, torch.zeros(1, TOKENS, dtype=torch.long), two_ranks))
    assert graphs.frame_count == len(layers), "a window and none"
    torch._dynamo.reset()


def masks(sequence: Sequence) -> tuple[Tensor, flex_attention.BlockMask]:
    documents = masking_utils.packed_sequence_mask_function(sequence.document_ids)
    causal = masking_utils.and_masks(masking_utils.causal_mask_function, documents)
    batch, length = sequence.document_ids.shape
    written = flex_attention.create_mask(causal, batch, 1, length, length, "cpu")
    return written, flex.block_mask(batch, length, length, mask_function=causal)


def check(rank: int, port: int) -> None:
    """On both ranks: heads that two do not divide, sinks, and a document over the border."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    shared, whole = pack((30, 33, 1), group=dist.group.WORLD), pack((30, 33, 1))
    torch.manual_seed(0)
    query, key, value, sinks = (torch.randn(1, n, 64, 16) for n in (6, 3, 3, 6))
    sinks = sinks[0, :, 0, 0]
    written, blocks = masks(whole)
    with computing(whole):
        expected, _ = attention.ulysses_attention(
            nn.Module(), query, key, value, written, s_aux=sinks
        )
    with computing(shared):
        mine = [shared.local(x, dim=2) for x in (query, key, value)]
        found, _ = attention.ulysses_attention(nn.Module(), *mine, blocks, s_aux=sinks)
    torch.testing.assert_close(found, shared.local(expected), rtol=1e-5, atol=1e-5)
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_attend_as_one_does_by_the_other_kernel() -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    mp.start_processes(check, args=(store.port,), nprocs=2, start_method="forkserver")


@pytest.mark.parametrize("arch", ["glm_moe_dsa", "deepseek_v4", "qwen4_exp"])
def test_a_model_that_changes_its_masks_is_refused(checkpoint: Checkpoint, arch: str) -> None:
    with pytest.raises(ConfigError, match=r"needs them written out; use model\.attention=sdpa"):
        load(checkpoint(arch), "flex")


def test_training_on_a_cpu_is_refused(checkpoint: Checkpoint) -> None:
    config = Config(model=ModelConfig(path=str(checkpoint("llama")), attention="flex"))
    with pytest.raises(ConfigError, match=r"no backward on a CPU; use model\.attention=sdpa"):
        Trainer(config, Ranks(0, 1, torch.device("cpu")))


def test_a_device_with_a_backward_is_not_refused() -> None:
    kernels.check_device(ModelConfig(attention="flex"), "cuda")


def first_step(path: Path, kernel: str, memory: MemoryConfig) -> Record:
    data = DataConfig(seq_len=256, global_batch=1)
    config = Config(model=ModelConfig(str(path), attention=kernel), data=data, memory=memory)
    trainer = Trainer(config, Ranks(0, 1, pick_device()))
    batch = next(iter(trainer.loader))
    return trainer.train_step({key: x.to(trainer.ranks.device) for key, x in batch.items()})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("arch", ["llama", "gpt_oss"])
@pytest.mark.parametrize(
    "memory",
    [
        MemoryConfig(),
        MemoryConfig(compile=True, fullgraph=True, ac="full", act_offload=True),
        MemoryConfig(compile=True, fullgraph=True, ac="selective"),
    ],
)
def test_gradients_are_those_of_the_other_kernel(
    checkpoint: Checkpoint, arch: str, memory: MemoryConfig
) -> None:
    path = checkpoint(arch)
    found, expected = (first_step(path, kernel, memory) for kernel in ("flex", "sdpa"))
    assert found["counters"][flex.COUNTER][0] >= 1
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-3)
    for group, norm in expected["grad_norm_groups"].items():
        assert found["grad_norm_groups"][group] == pytest.approx(norm, rel=1e-2), group
