"""On every mesh of up to eight ranks, norms and checkpoints are those of one process.

Weights and gradients are hashes of their places, and dimensions divide by few numbers of ranks: a
value that is lost, counted twice or in another's place shows.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import Tensor, nn
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from sft import checkpoint
from sft import model as models
from sft.config import Config, LayoutConfig, ModelConfig
from sft.optimizer import make_optimizer
from sft.ranks import Ranks
from sft.report import bits, gradients, shards
from tests.nightly import representatives

EVERY = tuple(range(2, 9))  # numbers of ranks
SOME = (4, 6)  # of which ep divides both ways, evenly and not
CPU = torch.device("cpu")
MAX_NORM = 0.5


def meshes(worlds: Sequence[int] = EVERY) -> list[tuple[int, int]]:
    """(ranks, ep): tensors lie over all ranks alike, however many share a sequence."""
    return [(n, ep) for n in worlds for ep in range(1, n + 1) if n % ep == 0]


def experts_of(world: int, ep: int) -> int:
    """So many experts that their ranks hold different numbers of them, wherever several may."""
    share = world // ep
    uneven = (n for n in range(2, 99) if n % share or share == 1)
    return ep * next(n for n in uneven if models.holders(n, share) == share)


def hash_of_places(name: str, like: Tensor) -> Tensor:
    """Values between -1 and 1, another for each name and place."""
    words = torch.full((like.numel(),), zlib.crc32(name.encode()))
    return (bits.mixed(words, 0).double() / 2**63).view(like.shape).to(like)


@torch.no_grad()
def write_model(experts: int, folder: Path) -> dict[str, float]:
    """Write a checkpoint of hashes; returns the norms of its tensors by group."""
    config = Qwen3MoeConfig(
        vocab_size=101, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, head_dim=6,
        num_key_value_heads=2, moe_intermediate_size=7, num_experts=experts,
        num_experts_per_tok=2, decoder_sparse_step=1, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen3MoeForCausalLM(config)
    squares: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        parameter.copy_(hash_of_places(name, parameter))
        group = gradients.group_of(name)
        squares[group] = squares.get(group, 0) + parameter.double().square().sum().item()
    model.save_pretrained(folder)
    return {group: square**0.5 for group, square in squares.items()}


def load(folder: Path, world: int, ep: int) -> nn.Module:
    layout = LayoutConfig(dp_shard=world, ep=ep)
    return models.load(Config(model=ModelConfig(str(folder)), layout=layout))


def check_norms(model: nn.Module, ranks: Ranks, expected: dict[str, float]) -> None:
    for parameter in model.parameters():
        parameter.grad = parameter.detach().clone()
    total = sum(norm**2 for norm in expected.values()) ** 0.5
    norm, groups = gradients.norms(model.named_parameters(), ranks)
    assert groups == pytest.approx(expected, rel=1e-9)
    assert norm == pytest.approx(total, rel=1e-9)
    factor = gradients.clip(model.parameters(), norm, MAX_NORM)
    assert factor == pytest.approx(MAX_NORM / total, rel=1e-5)
    clipped, groups = gradients.norms(model.named_parameters(), ranks)
    assert clipped == pytest.approx(MAX_NORM, rel=1e-5)
    assert groups == pytest.approx({name: x * factor for name, x in expected.items()}, rel=1e-5)


def check_values(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    for name, parameter in model.named_parameters():
        moments = [optimizer.state[parameter]["exp_avg"]] if optimizer else []
        for tensor in (parameter.detach(), *moments):
            whole = shards.whole(tensor)
            assert torch.equal(whole, hash_of_places(name, whole)), name


@torch.no_grad()
def check_checkpoint(model: nn.Module, ranks: Ranks, place: Path) -> None:
    """Load what another mesh saved, if one has, and then what this one saves."""
    model.zero_grad()  # torch makes no moments beside gradients
    optimizer = make_optimizer(model, Config())
    trainer: Any = SimpleNamespace(model=model, optimizer=optimizer, ranks=ranks)
    state = checkpoint.tensors(trainer)
    del state["rng"], state["optimizer"]["param_groups"]
    for parameter in model.parameters():
        shards.local(optimizer.state[parameter]["exp_avg"]).copy_(shards.local(parameter))
    own, others_did = place.with_name(f"{place.name}-own"), place.exists()
    ranks.wait()
    for saved in (place, own):
        if saved == own or not others_did:
            dcp.save(state, checkpoint_id=saved)
        for parameter in model.parameters():
            for tensor in (parameter, optimizer.state[parameter]["exp_avg"]):
                shards.local(tensor).zero_()
        dcp.load(state, checkpoint_id=saved)
        check_values(model, optimizer)


def each_mesh(
    rank: int, port: int, worlds: Sequence[int], folder: Path, expected: dict[int, dict[str, float]]
) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    store = dist.TCPStore("127.0.0.1", port)
    for number, (world, ep) in enumerate(meshes(worlds)):
        if rank >= world:
            continue
        os.environ["WORLD_SIZE"] = str(world)
        own = dist.PrefixStore(str(number), store)
        dist.init_process_group("gloo", store=own, rank=rank, world_size=world)
        experts = experts_of(world, ep)
        model = load(folder / str(experts), world, ep)
        check_values(model)
        check_norms(model, Ranks(rank, world, CPU), expected[experts])
        check_checkpoint(model, Ranks(rank, world, CPU), folder / f"saved-{experts}")
        dist.destroy_process_group()


def test_how_tensors_lie_depends_on_the_ranks_and_not_on_who_shares_a_sequence() -> None:
    """So that `meshes` are all products of dp_shard, cp and ep."""
    for world, ep in meshes():
        splits = [(world // cp, cp) for cp in range(1, world + 1) if world % cp == 0]
        layouts = [LayoutConfig(dp_shard=dp, cp=cp, ep=ep) for dp, cp in splits]
        lie = [vars(models.distributed_config(Config(layout=layout))) for layout in layouts]
        assert all(one == lie[0] for one in lie)
    assert {(8, 2), (8, 4), (6, 2), (6, 3), (4, 2)} <= set(meshes())


@pytest.mark.slow
@pytest.mark.parametrize("worlds", representatives([SOME, EVERY], SOME))
def test_norms_and_checkpoints_on_every_mesh_are_those_of_one_process(
    worlds: Sequence[int], tmp_path: Path
) -> None:
    counts = {experts_of(world, ep) for world, ep in meshes(worlds)}
    expected = {experts: write_model(experts, tmp_path / str(experts)) for experts in counts}
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    arguments = (store.port, worlds, tmp_path, expected)
    mp.start_processes(each_mesh, args=arguments, nprocs=max(worlds), start_method="forkserver")
