"""`trainer=prime_rl`: its TOML has fields that its configuration has, and its metrics are read."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sweep import trainers
from sweep.checks import Context, Outcome, finite
from sweep.facts import Facts, Metrics
from sweep.schema import ActivationCheckpointing, Device, ExpertDispatch, Settings
from sweep.trainers.prime_rl import PrimeRlConf
from tests.sweep.adapters import case_for, launched

PRIME_RL = trainers.load("prime_rl")
RECORDED = Path(__file__).with_name("recorded")
FIELDS: dict[str, list[str]] = json.loads((RECORDED / "prime_rl_fields.json").read_text())
FULL = ActivationCheckpointing.full


def settings(cp: int = 1, ep: int = 4, **feature: Any) -> Settings:
    return case_for(PrimeRlConf(), 4, cp, ep, device=Device.cuda, **feature)


def configs(found: Settings, case_dir: Path) -> list[dict[str, Any]]:
    """The TOML of every launch of the case, in order."""
    return [
        tomllib.loads((directory / "config.toml").read_text())
        for _, directory in launched(found, case_dir)
    ]


def tables(config: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every table of the TOML by the name under which its fields were recorded."""
    kind = f"{name}:{config['type']}" if f"{name}:{config.get('type')}" in FIELDS else name
    yield kind, config
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from tables(value, f"{name}.{key}".lstrip("."))


EVERYTHING = {"compile": True, "ac": FULL, "act_offload": True, "optim_offload": True}


@pytest.mark.parametrize(
    "found",
    [
        settings(**EVERYTHING, resume_at=[3, 5]),
        settings(cp=4, **EVERYTHING, fullgraph=True),
        settings(compile=True, ac=ActivationCheckpointing.selective, full_offload=True),
        settings(ac=FULL, ep_backend=ExpertDispatch.deepep),
        settings(ep=1),
    ],
)
def test_every_field_is_one_of_its_configuration(found: Settings, tmp_path: Path) -> None:
    found.optim.warmup_steps = 2
    for config in configs(found, tmp_path):
        for name, table in tables(config):
            assert set(table) <= set(FIELDS[name]), name


def test_features_are_said_in_its_words(tmp_path: Path) -> None:
    [config] = configs(settings(cp=4, **EVERYTHING, fullgraph=True), tmp_path)
    model = config["model"]
    assert (model["cp"], model["cp_style"], model["ep"]) == (4, "ulysses", 4)
    assert model["compile"] == {"fullgraph": True}
    assert (model["ac"], model["ac_offloading"]) == ({"mode": "full"}, {})
    assert (model["optim_cpu_offload"], model["full_offload"]) == (True, False)
    assert config["monitors"] == {"wandb": "None", "file": {"path": "metrics.jsonl"}}


def test_what_is_off_is_said_to_be_off_since_its_defaults_are_on(tmp_path: Path) -> None:
    [config] = configs(settings(), tmp_path)
    model = config["model"]
    assert (model["compile"], model["ac"], model["ac_offloading"]) == ("None", "None", "None")
    assert model["optim_cpu_offload"] is False


def test_deepep_and_full_offloading_do_not_clip(tmp_path: Path) -> None:
    [config] = configs(settings(ac=FULL, ep_backend=ExpertDispatch.deepep), tmp_path)
    assert config["model"]["ep_comm_backend"] == "deepep"
    assert config["optim"]["max_norm"] == "None"


def test_a_resume_names_the_folder_of_the_step(tmp_path: Path) -> None:
    first, second, third = configs(settings(resume_at=[3, 5]), tmp_path)
    assert (first["ckpt"], first.get("resume")) == ({"interval": 3}, None)
    assert second["ckpt"] == {"interval": 5}
    assert second["resume"] == {"dir": f"{tmp_path}/launches/1_train/run/checkpoints/step_3"}
    assert "ckpt" not in third
    assert third["resume"] == {"dir": f"{tmp_path}/launches/2_resume/run/checkpoints/step_5"}


def test_it_is_started_with_uv_in_its_own_project(tmp_path: Path) -> None:
    found = settings()
    launch = PRIME_RL.launches(found)[0]
    start = PRIME_RL.command(found, launch, tmp_path, Path("/model")).argv
    assert start == ["uv", "run", "sft", "@", f"{tmp_path}/config.toml"]
    found.trainer = PrimeRlConf(project="/opt/prime-rl")
    start = PRIME_RL.command(found, launch, tmp_path, Path("/model")).argv
    assert start[:4] == ["uv", "run", "--project", "/opt/prime-rl"]


def test_a_failures_cause_is_looked_for_where_its_launcher_leaves_it(tmp_path: Path) -> None:
    PRIME_RL.command(settings(), PRIME_RL.launches(settings())[0], tmp_path, Path("/model"))
    attempt = tmp_path / "run/logs/attempt_1"
    (attempt / "trainer/torchrun/x/attempt_0/2").mkdir(parents=True)
    (attempt / "trainer/torchrun/x/attempt_0/2/error.json").write_text("{}")
    (tmp_path / "run/logs/latest").symlink_to("attempt_1")
    assert [path.parent.name for path in (tmp_path / "ranks").rglob("error.json")] == ["2"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"act_offload": True}, "turns activation checkpointing on"),
        ({"optim_offload": True, "full_offload": True}, "not both"),
        ({"packed": False}, "is not told of packed=false"),
        ({}, None),
    ],
)
def test_what_its_configuration_refuses_is_unavailable(
    changed: dict[str, Any], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    said = PRIME_RL.unavailable(settings(**changed))
    assert said is None if reason is None else reason in str(said)


def test_without_a_gpu_or_without_uv_it_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings()
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "uv, which is not installed" in str(PRIME_RL.unavailable(found))
    found.device = Device.cpu
    assert PRIME_RL.unavailable(found) == "prime-rl trains on GPUs only"


def recorded(name: str, folder: Path) -> Metrics:
    (folder / "run").mkdir()
    (folder / "run/metrics.jsonl").write_text((RECORDED / name).read_text())
    return PRIME_RL.metrics(settings(), folder)


def test_its_lines_of_a_step_are_one_step(tmp_path: Path) -> None:
    metrics = recorded("prime_rl.jsonl", tmp_path)
    assert metrics.bad_lines == []
    assert [(one.step, one.loss, one.grad_norm) for one in metrics.steps] == [
        (1, 7.9, 1.51),
        (2, 7.8, 1.52),
        (3, 7.7, 1.53),
    ]
    assert metrics.steps[0].lr == 1e-4
    assert metrics.steps[0].step_seconds == 2.5
    assert metrics.steps[0].peak_memory_gib == 3.25


def test_a_loss_that_it_dropped_is_no_missing_step_but_a_failure(
    tmp_path: Path, make_facts: Any
) -> None:
    metrics = recorded("prime_rl_nan.jsonl", tmp_path)
    assert [one.step for one in metrics.steps] == [1, 2]
    assert "loss: Field required" in metrics.bad_lines[0]
    facts: Facts = make_facts(metrics=metrics, last_step=3)
    assert finite.check(facts, Context()).outcome is Outcome.FAIL


def test_without_clipping_there_is_no_gradient_norm(tmp_path: Path, make_facts: Any) -> None:
    metrics = recorded("prime_rl_deepep.jsonl", tmp_path)
    assert [one.grad_norm for one in metrics.steps] == [None] * 3
    facts: Facts = make_facts(metrics=metrics, last_step=3)
    facts.asked["not_shown"] = ["params_moved", "grad_norm"]
    assert finite.check(facts, Context()).outcome is Outcome.PASS
