"""The built-in trainer, in one process and in several, computes what the oracle computes."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny_models
from oracle import batches, source, steps
from oracle.batches import Steps
from oracle.settings import Settings
from sft.config import Config, DataConfig, ModelConfig, OptimConfig
from sft.loop import Trainer
from sft.packing import packed_rows
from sft.ranks import Ranks
from sft.report import metrics
from tests.nightly import representatives
from tests.oracle.conftest import Torchrun

OPTIM: dict[str, Any] = {
    "lr": 1e-4, "weight_decay": 0.1, "decay": "matrices", "warmup_steps": 1,
}  # fmt: skip
BALANCED = OPTIM | {"aux_loss_coef": 0.01, "router_bias_rate": 1e-3}
STEEP = OPTIM | {"lr": 1e-2}
pytestmark = pytest.mark.usefixtures("one_thread")
LOSS, GRAD_NORM = 5e-7, 1e-5
KINKED = {"grad_norm": 1e-3, "embedding": 1e-2}  # qwen4_exp's n-gram gate (docs/parity.md)
CHATS = Path("sft/documents/chats.jsonl")


def train(
    arch: str, folder: Path, monkeypatch: pytest.MonkeyPatch, optim: dict[str, Any], rows: int
) -> tuple[list[dict[str, Any]], Steps]:
    """What the trainer reports of three steps in this process, and the batches that it shows."""
    monkeypatch.setenv("SWEEP_TAPS", str(folder / "taps"))
    config = Config(
        model=ModelConfig(path=str(tiny_models.ensure(arch, "nano", 0))),
        data=DataConfig(global_batch=rows),
        optim=OptimConfig(**optim),
        steps=3,
        output_dir=str(folder),
    )
    Trainer(config, Ranks(0, 1, torch.device("cpu"))).run()
    return metrics.read(folder), batches.read([folder / "taps"])


@pytest.fixture(scope="module")
def steep(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Steps]:
    """What the trainer reports of, and shows in, three large steps."""
    with pytest.MonkeyPatch.context() as patch:
        return train("llama", tmp_path_factory.mktemp("steep"), patch, STEEP, rows=2)


def compute(arch: str, trained: Steps, optim: dict[str, Any]) -> list[dict[str, Any]]:
    checkpoint = tiny_models.ensure(arch, "nano", 0)
    return list(steps.compute(checkpoint, trained, Settings(**optim), "cpu"))


def assert_alike(
    reported: list[dict[str, Any]], figures: list[dict[str, Any]], wide: Mapping[str, float] = {}
) -> None:
    """Every step, every figure; `wide` has the relative tolerance of those that need another."""
    assert [one["step"] for one in reported] == [one["step"] for one in figures]
    for ours, expected in zip(reported, figures, strict=True):
        assert ours["lr"] == pytest.approx(expected["lr"], rel=1e-12)
        assert ours["tokens"] == expected["tokens"]
        assert ours["loss"] == pytest.approx(expected["loss"], rel=LOSS)
        norms = ours["grad_norm_groups"] | {"grad_norm": ours["grad_norm"]}
        expected_norms = expected["grad_norm_groups"] | {"grad_norm": expected["grad_norm"]}
        assert norms.keys() == expected_norms.keys()
        for group, norm in norms.items():
            rel = wide.get(group, GRAD_NORM)
            assert norm == pytest.approx(expected_norms[group], rel=rel, abs=1e-12), group
        assert ours.get("aux_loss", 0.0) == pytest.approx(expected.get("aux_loss", 0.0), rel=LOSS)


@pytest.mark.parametrize(
    ("arch", "optim"),
    [("llama", OPTIM), ("qwen3_moe", OPTIM), ("deepseek_v4", OPTIM), ("glm4_moe", BALANCED)],
)
def test_one_process_agrees(
    arch: str, optim: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported, trained = train(arch, tmp_path, monkeypatch, optim, rows=2)
    assert_alike(reported, compute(arch, trained, optim))
    assert all(("aux_loss" in figures) == (optim is BALANCED) for figures in reported)


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": 1.2e-4}, {"warmup_steps": 2}, {"max_grad_norm": 0.5}, {"weight_decay": 0.0},
        {"beta2": 0.95}, {"decay": "all"},
    ],
)  # fmt: skip
def test_another_optimizer_is_seen(
    changes: dict[str, Any], steep: tuple[list[dict[str, Any]], Steps]
) -> None:
    reported, trained = steep
    with pytest.raises(AssertionError):
        assert_alike(reported, compute("llama", trained, STEEP | changes))


def test_the_same_optimizer_agrees_there(steep: tuple[list[dict[str, Any]], Steps]) -> None:
    reported, trained = steep
    assert_alike(reported, compute("llama", trained, STEEP))


def test_documents_in_another_order_give_the_same_figures_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, trained = train("llama", tmp_path, monkeypatch, OPTIM, rows=2)
    moved = {step: random.Random(0).sample(docs, len(docs)) for step, docs in trained.items()}
    moved = {step: [replace(doc, row="other") for doc in docs] for step, docs in moved.items()}
    assert batches.digest(moved) == batches.digest(trained)
    assert compute("llama", moved, OPTIM) == compute("llama", trained, OPTIM)


def test_the_trainers_documents_are_those_of_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, trained = train("llama", tmp_path, monkeypatch, OPTIM, rows=4)
    checkpoint = tiny_models.ensure("llama", "nano", 0)
    settings = Settings(source=str(CHATS), max_length=512, order="rows")
    compared = source.compare(checkpoint, trained, settings)
    assert (compared["wrong"], compared["source_documents"]) == (0, 40)
    assert compared["documents"] >= 10
    config = Config(model=ModelConfig(path=str(checkpoint)))
    assert len(packed_rows(config)) > 4  # so that not all of the source was trained on


@pytest.mark.slow
@pytest.mark.parametrize(
    "arch", representatives(tiny_models.names(), "qwen3_moe", "deepseek_v4", "qwen4_exp")
)
def test_one_process_of_every_architecture_agrees(
    arch: str, tmp_path: Path, torchrun: Torchrun
) -> None:
    reported, figures = in_processes(torchrun, arch, tmp_path, OPTIM, {})
    assert_alike(reported, figures["steps"], KINKED if arch == "qwen4_exp" else {})


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["qwen3_moe", "nemotron_h"])
def test_ranks_that_share_sequences_agree(arch: str, tmp_path: Path, torchrun: Torchrun) -> None:
    layout = {"dp_shard": 2, "cp": 2, "ep": 4}
    reported, figures = in_processes(torchrun, arch, tmp_path, OPTIM, layout)
    assert_alike(reported, figures["steps"])


def in_processes(
    torchrun: Torchrun, arch: str, folder: Path, optim: dict[str, Any], layout: dict[str, int]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What torchrun's ranks report of three steps, and what `python -m oracle` answers."""
    checkpoint = str(tiny_models.ensure(arch, "nano", 0))
    config, chosen = folder / "config.json", folder / "settings.json"
    config.write_text(json.dumps({
        "model": {"path": checkpoint}, "optim": optim, "layout": layout, "steps": 3,
        "output_dir": str(folder),
    }))  # fmt: skip
    chosen.write_text(json.dumps(optim))
    ranks = layout.get("dp_shard", 1) * layout.get("cp", 1)
    torchrun(ranks, "sft", str(config), SWEEP_TAPS=str(folder / "taps"), OMP_NUM_THREADS="1")
    asked = [checkpoint, str(folder / "taps"), "--settings", str(chosen)]
    files = ["--reported", str(folder / "metrics.jsonl"), "--out", str(folder / "oracle.json")]
    torchrun(1, "oracle", *asked, *files, OMP_NUM_THREADS="1")
    return metrics.read(folder), json.loads((folder / "oracle.json").read_text())
