"""`trainer=torchtitan`: options that its parser has, and figures from its event files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sweep import schema, trainers
from sweep.schema import ActivationCheckpointing, Device, Settings
from sweep.trainers.torchtitan import TorchtitanConf
from tests.sweep.adapters import case_for, launched

TORCHTITAN = trainers.load("torchtitan")
RECORDED = Path(__file__).with_name("recorded") / "torchtitan"
OPTIONS = {"module", "config", *(RECORDED / "options.txt").read_text().split()}


def settings(*degrees: int, **changed: Any) -> Settings:
    trainer = TorchtitanConf(python="/venv/bin/python")
    return case_for(trainer, *degrees, device=Device.cuda, **changed)


def commands(found: Settings, case_dir: Path) -> list[list[str]]:
    """The options of every launch of the case, in order."""
    every = [command.argv for command, _ in launched(found, case_dir)]
    assert {argv[0] for argv in every} == {"/venv/bin/python"}
    return [argv[argv.index("torchtitan.train") + 1 :] for argv in every]


def value(words: list[str], option: str) -> str:
    return words[words.index(f"--{option}") + 1]


@pytest.mark.parametrize(
    "found",
    [
        settings(),
        settings(4, ep=4, compile=True, compile_backend="inductor", full_offload=True),
        settings(4, cp=2, ep=4, ac=ActivationCheckpointing.selective, resume_at=[3, 5]),
    ],
)
def test_every_option_is_one_of_its_parser(found: Settings, tmp_path: Path) -> None:
    for words in commands(found, tmp_path):
        said = {word.removeprefix("--") for word in words if word.startswith("--")}
        assert said <= OPTIONS
        assert words[-1] == f"activation-checkpoint:{found.feature.ac.value}"


def test_degrees_and_batch_are_those_of_the_layout(tmp_path: Path) -> None:
    [words] = commands(settings(4, cp=2, ep=4), tmp_path)
    degrees = [
        value(words, f"parallelism.{kind}-degree")
        for kind in ("data-parallel-shard", "context-parallel", "expert-parallel")
    ]
    assert degrees == ["2", "2", "4"]
    assert value(words, "training.global-batch-size") == "4"
    assert "--training.disable-cuda-graphs" in words


def test_it_learns_the_same_text_in_every_launch(tmp_path: Path) -> None:
    words, again = commands(settings(resume_at=[5]), tmp_path)
    texts = [
        Path(value(one, "dataloader.dataset-path"), "train.jsonl").read_text()
        for one in (words, again)
    ]
    assert texts[0] == texts[1]
    assert len(json.loads(texts[0].splitlines()[0])["text"]) > 0


def test_a_resume_restores_everything_of_the_saved_step(tmp_path: Path) -> None:
    first, second = commands(settings(resume_at=[5]), tmp_path)
    assert "--checkpoint.enable" in first
    assert value(first, "checkpoint.interval") == "5"
    assert (
        value(second, "checkpoint.initial-load-path")
        == f"{tmp_path}/launches/1_train/checkpoint/step-5"
    )
    assert {"--checkpoint.no-initial-load-model-only", "--checkpoint.load-only"} <= set(second)


def test_its_event_files_are_steps(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "tb", tmp_path / "tb")
    metrics = TORCHTITAN.metrics(settings(), tmp_path)
    assert metrics.bad_lines == []
    assert [(one.step, one.loss, one.grad_norm) for one in metrics.steps] == [
        (1, 7.875, 1.5),
        (2, 7.75, 1.5),
        (3, 7.625, 1.5),
    ]
    assert metrics.steps[0].lr == pytest.approx(1e-4)
    assert (metrics.steps[0].step_seconds, metrics.steps[0].peak_memory_gib) == (0.25, 1.5)


def changed(**changes: Any) -> Settings:
    found = settings()
    for key, new in changes.items():
        setattr(found, key, new)
    return found


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (settings(), None),
        (settings(act_offload=True), "cannot do feature.act_offload=true"),
        (settings(fullgraph=True, compile=True), "cannot do feature.fullgraph=true"),
        (changed(arch=schema.ArchConf(name="laguna", moe=True)), "no such model; it has llama"),
        (changed(device=Device.cpu), "it needs a GPU"),
        (changed(scale=schema.ScaleConf(name="tiny")), "say scale=nano"),
        (changed(fault="dead_model"), "is not told of fault=dead_model"),
        (changed(trainer=TorchtitanConf()), "not installed; trainer.python names"),
    ],
)
def test_what_it_cannot_do_is_unavailable_with_the_reason(
    found: Settings, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    have = {"tensorboard": True}
    monkeypatch.setattr("sweep.trainers.torchtitan.find_spec", have.get)
    said = TORCHTITAN.unavailable(found)
    assert said is None if reason is None else reason in str(said)
