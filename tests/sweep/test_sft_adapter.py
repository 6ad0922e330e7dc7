"""The config that the built-in trainer gets, and what it is told to save and go on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep import schema, trainers
from sweep.errors import RequestError
from sweep.schema import Attention, Device, LinearAttention, Settings
from sweep.trainers import sft, sft_faults
from tests.sweep.adapters import case_for, launched


@pytest.fixture
def settings() -> Settings:
    return case_for(schema.SftConf(), 2, arch="llama")


def configs(settings: Settings, case_dir: Path) -> list[dict[str, Any]]:
    """The config of every launch of the case, in order."""
    return [json.loads((directory / "config.json").read_text())
            for _, directory in launched(settings, case_dir)]  # fmt: skip


def test_a_run_resumed_twice_saves_in_each_launch_what_the_next_goes_on_from(
    settings: Settings, tmp_path: Path
) -> None:
    settings.feature.resume_at = [3, 5]
    launches = tmp_path / "launches"
    assert [one["checkpoint"] for one in configs(settings, tmp_path)] == [
        {"save_at": [3], "resume_from": None},
        {"save_at": [5], "resume_from": str(launches / "1_train" / "checkpoints" / "step_3")},
        {"save_at": [], "resume_from": str(launches / "2_resume" / "checkpoints" / "step_5")},
    ]


def test_a_run_that_is_not_resumed_saves_nothing(settings: Settings, tmp_path: Path) -> None:
    [config] = configs(settings, tmp_path)
    assert config["checkpoint"] == {"save_at": [], "resume_from": None}


@pytest.mark.parametrize("decay", ["matrices", "all"])
def test_what_decays_reaches_the_trainer(settings: Settings, tmp_path: Path, decay: str) -> None:
    settings.optim.decay = type(settings.optim.decay)(decay)
    [config] = configs(settings, tmp_path)
    assert config["optim"]["decay"] == decay


def test_documents_by_themselves_are_for_one_process(settings: Settings) -> None:
    settings.feature.packed = False
    assert "one by one" in str(trainers.load("sft").unavailable(settings))
    settings.layout = schema.LayoutConf(world_size=1, dp_shard=1, cp=1, ep=1)
    assert trainers.load("sft").unavailable(settings) is None


@pytest.mark.parametrize(
    ("device", "indexer", "dropout", "said"),
    [
        (Device.cpu, False, 0.0, "no backward on a CPU"),
        (Device.cuda, True, 0.0, "an indexer's picks"),
        (Device.cuda, False, 0.1, "drops no attention weights"),
        (Device.cuda, False, 0.0, None),
    ],
)
def test_flex_attention_is_unavailable_where_the_trainer_refuses_it(
    settings: Settings, device: Device, indexer: bool, dropout: float, said: str | None
) -> None:
    settings.feature.attention = Attention.flex
    settings.device, settings.attention_dropout = device, dropout
    settings.arch.indexer = indexer
    reason = trainers.load("sft").unavailable(settings)
    assert reason is None if said is None else said in str(reason)


@pytest.mark.parametrize(
    ("device", "delta_net", "installed", "said"),
    [
        (Device.cuda, False, True, "arch=llama has no gated delta net"),
        (Device.cuda, True, False, "flash-linear-attention, which is not installed"),
        (Device.cpu, True, True, "need a GPU"),
        (Device.cuda, True, True, None),
    ],
)
def test_flash_linear_attention_is_unavailable_where_the_trainer_refuses_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch,
    device: Device, delta_net: bool, installed: bool, said: str | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(sft, "find_spec", lambda name: name if installed else None)
    settings.feature.linear_attention = LinearAttention.fla
    settings.device, settings.arch.delta_net = device, delta_net
    reason = trainers.load("sft").unavailable(settings)
    assert reason is None if said is None else said in str(reason)


def test_kernels_are_the_models_and_not_the_memorys(settings: Settings, tmp_path: Path) -> None:
    settings.feature.attention = Attention.flex
    [config] = configs(settings, tmp_path)
    assert (config["model"]["attention"], config["model"]["linear_attention"]) == ("flex", "torch")
    assert not {"attention", "linear_attention"} & set(config["memory"])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("dead_modle", "did you mean dead_model?"),
        ("nonsense:1", "there is no such fault: python -m sft.faults lists them"),
        ("ep_grad_scaled:abc", "the strength is a number, as in fault=ep_grad_scaled:1"),
        ("ep_grad_scaled:", "the strength is a number"),
        ("ep_grad_scaled:nan", "the strength is a number"),
        ("save_rank0_only_hangs:1", "has no strength; say fault=save_rank0_only_hangs"),
        ("", "there is no such fault"),
    ],
)
def test_a_fault_that_is_none_is_refused_before_anything_runs(
    settings: Settings, fault: str, said: str
) -> None:
    settings.fault = fault
    with pytest.raises(RequestError, match=said):
        trainers.load("sft").unavailable(settings)


def test_the_faults_read_from_the_source_are_those_that_there_are(settings: Settings) -> None:
    from sft.faults.registry import FAULTS

    known = {name: bool(fault.strengths) for name, fault in FAULTS.items()}
    assert sft_faults.faults() == known
    settings.fault = "ep_grad_scaled:2"
    assert trainers.load("sft").unavailable(settings) is None
