"""The commands that people and CI are told to type exist and do what they are told to do."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from sweep.cli.usage import usage
from sweep.files import ConfDirs

ROOT = Path(__file__).resolve().parents[2]


def makes(text: str) -> set[str]:
    """The targets of the `make` commands in a text's lines of code."""
    return set(re.findall(r"^(?:[A-Z_]+=\S+ )*make ([a-z-]+)", text, re.MULTILINE))


def make(*arguments: str) -> str:
    """What make prints, whatever variables the make that started these tests was given."""
    command = ["make", "--no-print-directory", *arguments]
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    return done.stdout


def targets() -> set[str]:
    return {line.split("\t")[0] for line in make("help").splitlines()}


def dry_run(*arguments: str) -> str:
    return make("--dry-run", *arguments)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_of_the_documentation_is_a_target(page: str) -> None:
    named = makes((ROOT / page).read_text())
    assert named, f"{page} names no make command"
    assert named <= targets()


def test_ci_ends_with_the_test_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert {"check", "test"} <= makes(script)
    assert script.strip().splitlines()[-1].startswith("make test")
    assert "test" in makes((ROOT / "README.md").read_text())


def test_make_sweep_runs_the_main_job() -> None:
    assert "-m sweep -m arch=qwen3_moe,gpt_oss layout=cp4_ep4" in dry_run("sweep")


def test_make_sweep_takes_other_arguments() -> None:
    commands = dry_run("sweep", "ARGS=arch=llama layout=single")
    assert commands.rstrip().endswith("-m sweep arch=llama layout=single")


def test_make_ui_shows_the_default_store_on_loopback() -> None:
    commands = dry_run("ui")
    assert "--host 127.0.0.1" in commands
    assert "sqlite:///outputs/mlflow.db" in commands
    assert "outputs/mlflow.db" in usage(ConfDirs())


def test_a_new_environment_is_installed_from_the_constraints(tmp_path: Path) -> None:
    commands = dry_run("env", f"VENV={tmp_path}/env")
    assert "-c constraints.txt -e '.[dev]'" in commands


def test_an_environment_that_is_up_to_date_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".installed").touch()
    assert "pip" not in dry_run("env", f"VENV={tmp_path}")
