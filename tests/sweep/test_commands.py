"""Commands that are printed run as they are printed."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from sweep import commands
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import MachineryError
from sweep.session.driver import Session


def test_a_command_has_the_folder_of_configuration_that_it_is_given() -> None:
    assert commands.spelled("sweep", ["a=b c"]) == "python -m sweep 'a=b c'"
    said = commands.spelled("sweep", ["outputs=o"], "my conf")
    assert said == "python -m sweep --config-dir 'my conf' outputs=o"


def test_what_to_go_on_with_is_started_as_the_sweep_was(
    planned: list[Planned], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["-m", "--config-dir", "mine", "arch=llama,qwen3", "hydra/launcher=slurm",
             "hydra.launcher.partition=gpu"]  # fmt: skip
    cases = [replace(case, config_dir="mine") for case in planned]
    session = Session.begin(cases, Machine(), live=False, argv=asked)

    def run() -> None:
        raise MachineryError("no space left")

    assert session.execute(run) == 3
    (line,) = (one for one in capsys.readouterr().err.splitlines() if "to go on" in one)
    words = shlex.split(line.partition("to go on: ")[2])
    assert words[:3] == ["python", "-m", "sweep"]
    assert words[3:5] == ["--config-dir", "mine"]
    assert words[5:] == [
        "-m",
        f"resume_sweep={session.folder.name}",
        f"outputs={session.folder.parent}",
        "hydra/launcher=slurm",
        "hydra.launcher.partition=gpu",
    ]
