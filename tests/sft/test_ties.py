"""Close choices are kept by place, and replayed where scores tie; weights stay the router's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

import tiny_models
from scripts import tie_bound
from sft.config import ChoicesConfig, Config, DataConfig, MemoryConfig, ModelConfig
from sft.context import choices, ties
from sft.errors import ConfigError
from sft.loop import Trainer
from sft.moe import balance, routing
from sft.ranks import Ranks
from sft.warm import launch

ALONE = Ranks(0, 1, torch.device("cpu"))
MOE = [arch for arch in tiny_models.names() if arch not in {"llama", "qwen3", "qwen3_5_dense"}]
Checkpoint = Callable[[str], Path]
KNOWN = torch.arange(4).expand(2, -1)


def test_a_margin_is_a_share_of_the_largest_score() -> None:
    scores = torch.tensor([[8.0, 4.0, 3.0, float("-inf")], [1.0, 1.0, 1.0, 1.0]])
    picked = torch.tensor([[True, True, False, False], [True] * 4])
    assert ties.margins(picked, scores).tolist() == [1 / 8, float("inf")]


def test_what_was_picked_is_known_by_number_whatever_its_place() -> None:
    picked = torch.tensor([[True, False, True, False], [False, True, False, False]])
    bits = ties.packed(picked, KNOWN)
    order = torch.tensor([2, 0, 3, 1])
    assert torch.equal(ties.unpacked(bits, KNOWN), picked)
    assert torch.equal(ties.unpacked(bits, order.expand(2, -1)), picked[:, order])
    more = torch.arange(12).expand(2, -1)  # candidates that nobody could pick then
    assert ties.unpacked(bits, more)[:, 4:].any().item() is False


@pytest.mark.parametrize("arch", MOE)
def test_weights_of_replayed_experts_are_those_that_the_router_gives(
    arch: str, checkpoint: Checkpoint
) -> None:
    torch.manual_seed(0)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(checkpoint(arch)))
    meta = next(one for one in balance.choosing(model) if type(one).__name__ in balance.SCORES)
    router = meta.to_empty(device="cpu")
    for tensor in (*router.parameters(), *router.buffers()):
        tensor.data.normal_()
    bias = (torch.zeros(router.num_experts),) if arch == "minimax_m2" else ()
    logits, weights, chosen = router(torch.randn(5, router.hidden_dim), *bias)
    scores = balance.score_of(router)(logits.float())
    again = routing.weights_of(router, scores, chosen, weights)
    assert torch.allclose(again, weights, rtol=1e-5)


def trainer(checkpoint: Path, book: ChoicesConfig, folder: Path, ac: str = "none") -> Trainer:
    config = Config(model=ModelConfig(str(checkpoint)), choices=book, steps=1)
    config.data = DataConfig(seq_len=128, global_batch=2)
    config.memory = MemoryConfig(ac=ac)
    config.output_dir = str(folder)
    return Trainer(config, ALONE)


def turn(kept: Path, width: float) -> None:
    """Turn the closest choice of the first step, as another layout may, and call it that close.

    Something earlier that others picked, and so a query sees, comes in the place of the last pick.
    """
    path = kept / "rank-0.safetensors"
    tensors = ties.load_file(path)
    margins = {name: x for name, x in tensors.items() if name.endswith("margins")}
    places = sorted((float(m), name, n) for name, x in margins.items() for n, m in enumerate(x))
    for _, name, row in places:
        bits = tensors[name.replace("margins", "picked")]
        known = torch.arange(8 * bits.shape[1]).expand(len(bits), -1)
        picked = ties.unpacked(bits, known)
        last = int(picked[row].nonzero()[-1])
        free = (picked.any(0) & ~picked[row])[:last].nonzero().flatten().tolist()
        if free:
            picked[row, last], picked[row, free[0]] = False, True
            bits[row] = ties.packed(picked, known)[row]
            margins[name][row] = width
            break
    ties.save_file(tensors, path)


def trained(one: Trainer) -> tuple[dict[str, Any], list[Tensor]]:
    """What a step reports, and its gradients."""
    seen: list[Tensor] = []
    one.optimizer.register_step_pre_hook(
        lambda *_: seen.extend(p.grad.clone() for p in one.model.parameters() if p.grad is not None)
    )
    return one.train_step(next(iter(one.loader))), seen


@pytest.mark.parametrize("arch", ["qwen3_moe", "deepseek_v4", "glm_moe_dsa", "qwen4_exp"])
def test_a_choice_is_replayed_where_it_is_a_tie_and_when_it_is_computed_again(
    arch: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    first = trainer(checkpoint(arch), ChoicesConfig(keep=True), tmp_path)
    own, _ = trained(first)
    ties.book.write(kept := tmp_path / "choices", 0)
    replay = ChoicesConfig(replay=str(kept), below=1e-3)
    alike, _ = trained(trainer(checkpoint(arch), replay, tmp_path))
    assert alike["loss"] == own["loss"], "its own choices change nothing"
    turn(kept, width=1e-6)
    strict = ChoicesConfig(replay=str(kept), below=5e-7)
    apart, _ = trained(trainer(checkpoint(arch), strict, tmp_path))
    assert apart[choices.PLACES] == own[choices.PLACES], "scores are further apart than a tie's"
    other, gradients = trained(trainer(checkpoint(arch), replay, tmp_path))
    assert other[choices.PLACES] != own[choices.PLACES]
    again, recomputed = trained(trainer(checkpoint(arch), replay, tmp_path, ac="full"))
    assert again[choices.PLACES] == other[choices.PLACES]
    assert all(map(torch.equal, gradients, recomputed))


def test_choices_are_refused_where_there_are_none_or_they_are_damaged(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has no choices"):
        ties.read(tmp_path)
    (tmp_path / "rank-0.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(ConfigError, match="is damaged"):
        ties.read(tmp_path)


def test_margins_are_compared_where_both_runs_picked_the_same() -> None:
    def kept(margins: list[float], picked: list[list[int]]) -> ties.Choices:
        bits = torch.tensor(picked, dtype=torch.uint8)
        return torch.tensor([3, 5, 9])[: len(margins)], torch.tensor(margins), bits

    ours = kept([0.5, 0.25, 0.0], [[1, 0], [2, 0], [4, 0]])
    theirs = kept([0.5, 0.125], [[1], [2]])  # fewer candidates, and one choice that was not close
    assert tie_bound.differences(ours, theirs) == [0.0, 0.125]
    assert tie_bound.differences(ours, kept([0.75, 0.125], [[1], [3]])) == [0.25]


def test_places_of_all_ranks_are_those_of_one_process(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    whole = trainer(checkpoint("qwen3_moe"), ChoicesConfig(keep=True), tmp_path)
    padding = torch.zeros(4, 8, dtype=torch.bool)
    padding[:, 6:] = True
    expected = whole.places(padding)
    assert expected[0].tolist() == [0, 1, 2, 3, 4, 5, -1, -1]
    whole.config.layout.dp_shard = 2
    for rank in (0, 1):
        whole.ranks = Ranks(rank, 2, torch.device("cpu"), dp_rank=rank)
        assert torch.equal(whole.places(padding[rank::2]), expected[rank::2])


@pytest.mark.slow
@pytest.mark.usefixtures("warm_ranks")
@pytest.mark.parametrize("arch", ["qwen3_moe", "glm_moe_dsa"])
def test_ranks_replay_a_choice_at_the_place_where_one_process_does(
    arch: str, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    def run(name: str, **keys: Any) -> list[dict[str, Any]]:
        model, memory = {"path": str(checkpoint(arch))}, {"ac": "full"}
        common = {"model": model, "memory": memory, "data": {"seq_len": 128}, "steps": 2}
        return launch.train(tmp_path / name, **common, **keys)

    own = run("own", choices={"keep": True})
    turn(kept := tmp_path / "own" / "choices", width=1e-6)
    replay = {"replay": str(kept), "below": 5e-6}
    whole = run("whole", choices=replay)
    assert [one[choices.PLACES] for one in whole] != [one[choices.PLACES] for one in own]
    for name, layout in {"cp2": {"cp": 2, "ep": 2}, "dp2": {"dp_shard": 2, "ep": 2}}.items():
        for split, one in zip(run(name, choices=replay, layout=layout), whole, strict=True):
            assert split[choices.PLACES] == one[choices.PLACES], name
            assert split["loss"] == pytest.approx(one["loss"], rel=1e-6)
            groups = pytest.approx(one["grad_norm_groups"], rel=1e-5)
            assert split["grad_norm_groups"] == groups, name
