"""A folder of somebody who has packages with the names of ours: they are not taken for ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sweep.commands import console_script

CASE = ("arch=llama", "layout=single", "feature=none", "steps=2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for package in ("sft", "tiny_models"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('not ours')\n")
    return tmp_path


def run(folder: Path, *command: str) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_cases_are_planned_there(folder: Path) -> None:
    run(folder, sys.executable, "-m", "sweep", "-m", *CASE, "plan=true")


def test_its_own_modules_are_found_last(folder: Path) -> None:
    (folder / "of_theirs.py").touch()
    code = "import sweep, sys; assert sys.path[0] == ''"  # not started as `python -m sweep`
    run(folder, sys.executable, "-c", code)
    target = "+hydra.callbacks.mine._target_=of_theirs.Missing"  # a callback, from that folder
    done = subprocess.run(
        [sys.executable, "-m", "sweep", "-m", *CASE, "plan=true", target],
        cwd=folder, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert "Error loading 'of_theirs.Missing'" in done.stderr
    assert "'of_theirs' is not a package" in done.stderr  # but a module, which was found


@pytest.mark.slow
@pytest.mark.parametrize("command", ["python -m sweep -m", "trainer-sweep"])
def test_the_built_in_trainer_trains_there(folder: Path, outputs: Path, command: str) -> None:
    """As a job whose ranks are forked, and in the foreground by torchrun."""
    (folder / "bin").mkdir()
    script = console_script(folder / "bin")
    program, *options = command.split()
    path = sys.executable if program == "python" else str(script)
    mode = "warm" if program == "python" else "cold"
    run(folder, path, *options, *CASE, f"launch.mode={mode}", f"outputs={outputs}")
    (facts,) = outputs.glob("*/llama-single-none/facts.json")
    (launch,) = json.loads(facts.read_text())["launches"]
    assert (launch["exit_code"], launch["mode"]) == (0, mode)
