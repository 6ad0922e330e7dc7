"""The config that the built-in trainer gets, and what it is told to save and go on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sweep import schema, trainers
from sweep.case.machine import Machine
from sweep.errors import MachineryError, RequestError
from sweep.plan import plan
from sweep.schema import (
    ActivationCheckpointing,
    Attention,
    Device,
    Dtype,
    ExpertDispatch,
    LinearAttention,
    Settings,
)
from sweep.trainers import sft
from sweep.trainers.sft import SftConf
from tests.sweep.adapters import case_for, launched
from tests.sweep.planning import composed

DEEPEP = ExpertDispatch.deepep


@pytest.fixture
def settings() -> Settings:
    return case_for(SftConf(), 2, arch="llama")


def configs(settings: Settings, case_dir: Path) -> list[dict[str, Any]]:
    """The config of every launch of the case, in order."""
    return [
        json.loads((directory / "config.json").read_text())
        for _, directory in launched(settings, case_dir)
    ]


def test_a_run_resumed_twice_saves_in_each_launch_what_the_next_goes_on_from(
    settings: Settings, tmp_path: Path
) -> None:
    settings.feature.resume_at = [3, 5]
    launches = tmp_path / "launches"
    assert [one["checkpoint"] for one in configs(settings, tmp_path)] == [
        {"save_at": [2, 3], "export_at": [7], "resume_from": None},
        {"save_at": [4, 5], "export_at": []}
        | {"resume_from": str(launches / "1_train" / "checkpoints" / "step_3")},
        {"save_at": [], "export_at": []}
        | {"resume_from": str(launches / "2_resume" / "checkpoints" / "step_5")},
    ]


def test_a_resume_after_the_first_step_has_no_earlier_save(
    settings: Settings, tmp_path: Path
) -> None:
    settings.feature.resume_at = [1]
    assert configs(settings, tmp_path)[0]["checkpoint"]["save_at"] == [1]


def test_a_run_that_is_not_resumed_saves_nothing(settings: Settings, tmp_path: Path) -> None:
    [config] = configs(settings, tmp_path)
    assert config["checkpoint"] == {"save_at": [], "export_at": [7], "resume_from": None}


def reason(settings: Settings) -> str | None:
    """Why the trainer refuses the case on this machine, or in this layout."""
    [found] = trainers.load("sft").check([settings])
    return found


@pytest.mark.parametrize("decay", ["matrices", "all"])
def test_what_decays_reaches_the_trainer(settings: Settings, tmp_path: Path, decay: str) -> None:
    settings.optim.decay = type(settings.optim.decay)(decay)
    [config] = configs(settings, tmp_path)
    assert config["optim"]["decay"] == decay


def test_documents_by_themselves_are_for_one_process(settings: Settings) -> None:
    settings.feature.packed = False
    assert "feature.packed=false computes documents one by one" in str(reason(settings))
    settings.layout = schema.LayoutConf(world_size=1, dp_shard=1, cp=1, ep=1)
    assert reason(settings) is None


def test_full_offloading_is_unavailable_in_one_process(settings: Settings) -> None:
    settings.feature.full_offload = True
    assert reason(settings) is None
    settings.layout = schema.LayoutConf(world_size=1, dp_shard=1, cp=1, ep=1)
    assert "feature.full_offload needs parameters sharded" in str(reason(settings))


@pytest.mark.parametrize(
    ("device", "indexer", "dropout", "said"),
    [
        (Device.cpu, False, 0.0, "no backward on a CPU"),
        (Device.cuda, True, 0.0, "the keys that it picks"),
        (Device.cuda, False, 0.1, "attention_dropout=0.1: FlexAttention drops nothing"),
        (Device.cuda, False, 0.0, None),
    ],
)
def test_flex_attention_is_unavailable_where_the_trainer_refuses_it(
    settings: Settings, device: Device, indexer: bool, dropout: float, said: str | None
) -> None:
    settings.feature.attention = Attention.flex
    settings.device, settings.attention_dropout = device, dropout
    settings.arch.indexer = indexer
    assert reason(settings) is None if said is None else said in str(reason(settings))


@pytest.mark.parametrize(
    ("device", "delta_net", "installed", "said"),
    [
        (Device.cuda, False, True, "llama has no gated delta net"),
        (Device.cuda, True, False, "needs the package flash-linear-attention"),
        (Device.cpu, True, True, "need a GPU"),
        (Device.cuda, True, True, None),
    ],
)
def test_flash_linear_attention_is_unavailable_where_the_trainer_refuses_it(
    settings: Settings, tmp_path: Path,
    device: Device, delta_net: bool, installed: bool, said: str | None,
) -> None:  # fmt: skip
    if installed:
        install(settings, "fla", tmp_path)
    settings.feature.linear_attention = LinearAttention.fla
    settings.device, settings.arch.delta_net = device, delta_net
    assert reason(settings) is None if said is None else said in str(reason(settings))


def install(settings: Settings, package: str, folder: Path) -> None:
    """Let the case's trainer find a package of that name."""
    (folder / package).mkdir()
    (folder / package / "__init__.py").touch()
    settings.trainer.env["PYTHONPATH"] = str(folder)


@pytest.mark.parametrize(
    ("installed", "ep", "dtype", "said"),
    [
        (False, 2, Dtype.bfloat16, "needs the deep_ep package"),
        (True, 1, Dtype.bfloat16, "needs layout.ep of 2 or more"),
        (True, 2, Dtype.float32, "moves bfloat16 only; use dtype=bfloat16"),
        (True, 2, Dtype.bfloat16, None),
    ],
)
def test_deepep_is_unavailable_where_the_trainer_refuses_it(
    settings: Settings, tmp_path: Path, installed: bool, ep: int, dtype: Dtype, said: str | None
) -> None:
    if installed:
        install(settings, "deep_ep", tmp_path)
    settings.feature.ep_backend, settings.dtype, settings.layout.ep = DEEPEP, dtype, ep
    assert reason(settings) is None if said is None else said in str(reason(settings))


def test_a_contradiction_is_refused_in_the_sweeps_own_words(settings: Settings) -> None:
    settings.feature.compile, settings.feature.compile_backend = True, "eager"
    settings.feature.ac = ActivationCheckpointing.selective
    said = "feature.compile_backend=eager keeps nothing for feature.ac=selective; use aot_eager"
    with pytest.raises(RequestError, match=f"^{said}$"):
        reason(settings)
    settings.feature.compile_backend = "xla"
    with pytest.raises(RequestError, match=r"feature\.compile_backend=xla must be one of eager"):
        reason(settings)


def test_the_trainer_is_asked_once_for_all_cases_of_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    answers = sft._answers
    monkeypatch.setattr(
        sft, "_answers", lambda cases, env: (asked.append(len(cases)), answers(cases, env))[1]
    )
    one = [f"arch={arch}" for arch in ("llama", "qwen3")]
    combinations = [
        [arch, "layout=fsdp2_ep2", f"feature={feature}", "device=cpu"]
        for arch in one
        for feature in ("none", "flex")
    ]
    cases = plan(combinations, composed, Machine())
    assert asked == [4]
    assert [bool(case.unavailable) for case in cases] == [False, True, False, True]


def test_what_could_run_nowhere_is_refused_while_planning() -> None:
    words = ["arch=llama", "layout=single", "feature=selective_ac"]
    with pytest.raises(RequestError, match="use aot_eager"):
        plan([[*words, "feature.compile_backend=eager"]], composed, Machine())


def test_a_trainer_that_does_not_answer_is_no_refusal(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(settings, "sft", tmp_path)
    (tmp_path / "sft" / "__main__.py").write_text("raise OSError('no space left')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineryError, match="-m sft --check fails: OSError: no space left"):
        reason(settings)
    monkeypatch.setattr(sft, "CHECK", ("/no/such/python", "-m", "sft", "--check"))
    with pytest.raises(MachineryError, match=r"cannot be asked what it can do: .*No such file"):
        reason(settings)


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
        ("ep_grad_scaled:abc", r"the strength is a number \(factor\); use fault=ep_grad_scaled:2"),
        ("ep_grad_scaled:", "the strength is a number"),
        ("ep_grad_scaled:nan", "the strength is a number"),
        ("save_rank0_only_hangs:1", "has no strength; use fault=save_rank0_only_hangs"),
        ("", "there is no such fault"),
    ],
)
def test_a_fault_that_is_none_is_refused_before_anything_runs(
    settings: Settings, fault: str, said: str
) -> None:
    settings.fault = fault
    with pytest.raises(RequestError, match=said):
        reason(settings)


def test_a_fault_that_there_is_can_be_planted(settings: Settings) -> None:
    settings.fault = "ep_grad_scaled:2"
    assert reason(settings) is None
