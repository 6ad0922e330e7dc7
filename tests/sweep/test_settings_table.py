"""Every setting of the built-in trainer is used by the nights, or it is said why not."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from scripts import settings_table
from scripts.settings_table import NIGHTS, NOT_IN_THE_NIGHTS


@pytest.fixture(scope="module")
def used() -> dict[str, list[Any]]:
    merged: defaultdict[str, list[Any]] = defaultdict(list)
    for name in NIGHTS:
        for key, values in settings_table.values(name).items():
            merged[key] += values
    return merged


def test_each_is_used_by_a_night_or_has_a_reason(used: dict[str, list[Any]]) -> None:
    assert settings_table.unused(used) == set(NOT_IN_THE_NIGHTS)


def test_a_setting_that_no_case_uses_is_found(used: dict[str, list[Any]]) -> None:
    assert "optim.weight_decay" in settings_table.unused(used | {"optim.weight_decay": [0.0]})
    assert "optim.weight_decay" in settings_table.unused({})


def test_a_process_saves_twice_in_a_night_and_resumes_while_it_warms_up() -> None:
    configs = [config for name in NIGHTS for config in settings_table.configs(name)]
    resumed = [config for config in configs if config["checkpoint"]["resume_from"]]
    assert resumed
    for config in resumed:
        first = int(config["checkpoint"]["resume_from"].rpartition("_")[2])
        assert first < config["optim"]["warmup_steps"]
    assert any(len(config["checkpoint"]["save_at"]) == 2 for config in configs)


def test_the_command_prints_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    settings_table.main(["smoke"])
    lines = capsys.readouterr().out.splitlines()[2:]
    keys = [line.split("`")[1] for line in lines]
    assert keys == list(settings_table.defaults())
