"""`trainer=hf_trainer`: the config that transformers' Trainer gets, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep import trainers
from sweep.schema import (
    ActivationCheckpointing,
    Device,
    ExpertDispatch,
    Settings,
)
from sweep.trainers.hf_trainer import NOT_FULL_ATTENTION, HfSharding, HfTrainerConf
from tests.sweep.adapters import case_for, launched
from tests.sweep.commands import sweep

HF = trainers.load("hf_trainer")


def settings(*degrees: int, **changed: Any) -> Settings:
    return case_for(HfTrainerConf(), *degrees, **changed)


def configs(found: Settings, case_dir: Path) -> list[dict[str, Any]]:
    """The config of every launch of the case, in order."""
    return [
        json.loads((directory / "config.json").read_text())
        for _, directory in launched(found, case_dir)
    ]


def test_each_optimizer_step_of_every_layout_is_the_global_batch(tmp_path: Path) -> None:
    for number, (world, micro) in enumerate([(1, 1), (2, 1), (2, 2), (4, 1)]):
        (tmp_path / str(number)).mkdir()
        found = settings(world)
        found.data.micro_batch = micro
        [config] = configs(found, tmp_path / str(number))
        rows = config["arguments"]
        steps = rows["per_device_train_batch_size"] * rows["gradient_accumulation_steps"]
        assert steps * world == found.data.global_batch


def test_transformers_shards_and_dispatches_while_loading(tmp_path: Path) -> None:
    [config] = configs(settings(4, ep=4), tmp_path)
    assert config["sharding"] == {
        "fsdp_size": 4,
        "ep_size": 4,
        "ep_implementation": "observed_all_to_all",
        "fsdp_cpu_offload": False,
    }
    assert "fsdp" not in config["arguments"]


def test_accelerate_shards_where_it_is_asked_to(tmp_path: Path) -> None:
    found = settings(2)
    found.trainer = HfTrainerConf(sharding=HfSharding.accelerate)
    [config] = configs(found, tmp_path)
    assert config["sharding"] is None
    assert config["arguments"]["fsdp"] is True


def test_a_resume_goes_on_from_trainers_own_checkpoint(tmp_path: Path) -> None:
    first, second = configs(settings(resume_at=[5]), tmp_path)
    assert (first["arguments"]["save_strategy"], first["arguments"]["save_steps"]) == ("steps", 5)
    assert first["resume_from"] is None
    assert second["resume_from"] == f"{tmp_path}/launches/1_train/checkpoints/checkpoint-5"
    assert second["arguments"]["save_strategy"] == "no"


def test_decay_of_all_tensors_is_nothing_that_it_is_told() -> None:
    found = settings()
    found.optim.decay = type(found.optim.decay)("all")
    assert "is not told of decay=all" in str(HF.unavailable(found))


def test_a_loss_that_is_no_number_is_logged_as_such(tmp_path: Path) -> None:
    [config] = configs(settings(), tmp_path)
    assert config["arguments"]["logging_nan_inf_filter"] is False


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (settings(4, cp=4), "accelerate has context parallelism on accelerators only"),
        (settings(4, cp=4, ep=4), "has no context one"),
        (settings(act_offload=True), "cannot do feature.act_offload=true"),
        (settings(ac=ActivationCheckpointing.selective), "cannot do feature.ac=selective"),
        (settings(ep_backend=ExpertDispatch.deepep), "cannot do feature.ep_backend=deepep"),
        (settings(2, full_offload=True), "on a CPU there is nothing to offload from"),
        (settings(4, ep=2, resume_at=[5]), "does not resume a model that transformers shards"),
        (settings(resume_at=[5]), None),
        (settings(4, ep=2, ac=ActivationCheckpointing.full), None),
    ],
)
def test_what_it_refuses_is_unavailable_with_the_reason(
    found: Settings, reason: str | None
) -> None:
    said = HF.unavailable(found)
    assert said is None if reason is None else reason in str(said)


def test_on_a_gpu_sliding_windows_under_context_parallelism_are_unavailable() -> None:
    found = settings(4, cp=4)
    found.device, found.arch.name, found.arch.moe = Device.cuda, "gpt_oss", True
    assert "refuses gpt_oss: attention sinks and sliding windows" in str(HF.unavailable(found))
    found.arch.name = "llama"
    assert HF.unavailable(found) is None


def test_transformers_itself_refuses_the_same_archs() -> None:
    import torch
    from transformers import AutoModelForCausalLM

    import tiny_models

    for name in tiny_models.names():
        config = tiny_models.get(name).config("nano")
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        assert model.supports_context_parallel == (name not in NOT_FULL_ATTENTION), name


@pytest.mark.slow
def test_a_model_that_accelerate_leaves_whole_on_cpus_is_found(outputs: Path) -> None:
    done = sweep(
        "-m", "trainer=hf_trainer", "arch=llama", "steps=2", "layout=fsdp2_ep2", "feature=none",
        "trainer.sharding=transformers,accelerate", f"outputs={outputs}", COLUMNS="200",
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed, 1 failed" in done.stdout
    said = " ".join(done.stdout.split())
    assert "exercised: train: a rank holds every parameter whole: nothing was sharded" in said
