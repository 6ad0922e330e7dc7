"""Commands that are printed run as they are printed."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from sweep import commands
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import MachineryError
from sweep.files import reading_also
from sweep.session.driver import Session
from sweep.store import Location, Writer


def test_a_command_has_the_folder_of_configuration_that_this_one_has() -> None:
    assert commands.spelled("sweep", ["a=b c"]) == "python -m sweep 'a=b c'"
    with reading_also("my conf"):
        said = commands.spelled("sweep.sync", ["outputs=o"])
    assert said == "python -m sweep.sync --config-dir 'my conf' outputs=o"
    assert commands.spelled("sweep", [], config_dir="its") == "python -m sweep --config-dir its"


def test_what_to_go_on_with_is_started_as_the_sweep_was(
    planned: list[Planned], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["-m", "--config-dir", "mine", "arch=llama,qwen3", "hydra/launcher=slurm",
             "hydra.launcher.partition=gpu"]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["sweep", *asked])
    session = Session.begin(planned, Machine(), live=False)

    def run() -> None:
        raise MachineryError("no space left")

    with reading_also("mine"):
        assert session.execute(run) == 3
    (line,) = (one for one in capsys.readouterr().err.splitlines() if "to go on" in one)
    words = shlex.split(line.partition("to go on: ")[2])
    assert words[:3] == ["python", "-m", "sweep"]
    assert words[3:5] == ["--config-dir", "mine"]
    assert words[5:] == [
        "-m", f"resume_sweep={session.folder.name}", f"outputs={session.folder.parent}",
        "hydra/launcher=slurm", "hydra.launcher.partition=gpu",
    ]  # fmt: skip


def test_what_a_failed_store_is_recorded_by_later_has_it_too(tmp_path: Path) -> None:
    writer = Writer(Location.at(tmp_path), tmp_path / "sweep")

    def fails() -> None:
        raise OSError("no")

    said = r"python -m sweep\.sync --config-dir mine outputs="
    with reading_also("mine"), pytest.raises(MachineryError, match=said):
        writer.call(fails)
