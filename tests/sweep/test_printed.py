"""Every command in the text that the tool prints has a test that runs it as it is printed."""

from __future__ import annotations

import ast
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import MachineryError
from sweep.facts import Facts
from sweep.session.driver import Session
from sweep.store import Location, Writer
from tests.sweep.commands import ROOT
from tests.sweep.printed import SPELLED, made, printed
from tests.sweep.recording import ended, night
from tests.sweep.revisions import TRAINER, git, history, planned_sweep, words_for

ON_SLURM = (
    "python -m sweep -m suite=nightly hydra/launcher=slurm device=cuda hydra.launcher.partition=gpu"
)
BISECT = "python -m sweep.bisect case=llama-cp4_ep1-base good=v1.2 bad=HEAD"
PLANNED = {
    "python -m sweep arch=llama layout=cp4_ep4",
    "python -m sweep -m arch=qwen3_moe,gpt_oss layout=cp4_ep4",
    "python -m sweep -m 'arch=glob(*)' layout=single,fsdp4_ep1 steps=8 launch.timeout_seconds=300",
    "python -m sweep -m suite=nightly plan=true",
    "python -m sweep -m suite=nightly arch=qwen3_moe shard=1/4",
    ON_SLURM,
    "python -m sweep -m suite=faults",
    "python -m sweep -m suite=smoke locate=true",
    "python -m sweep arch=llama layout=single",
    "python -m sweep arch=llama layout=single feature=none fault=dead_model",
}
"""Sweeps that take minutes: each is composed and planned as printed."""
RECORDED = {
    "python -m sweep.baseline pin latest experiment=nightly": 0,
    "python -m sweep.baseline show": 0,
    "python -m sweep.baseline unpin experiment=nightly": 0,
    "python -m sweep.compare base=previous head=latest experiment=nightly": 0,
    "python -m sweep.judge sweep=latest experiment=nightly": 0,
    "python -m sweep.collect sweep=latest": 2,  # that sweep was not submitted to Slurm
}
"""Run where a nightly is recorded, with the exit code."""
RESUMED = "python -m sweep -m resume_sweep=latest"
SHORT = {
    "python -m sweep --help shows examples": "exit code",
    "python -m sweep arch=llama layout=single --cfg job": "llama",
    "python -m sft.faults": "dead_model",
    "python -m sft.faults lists them": "dead_model",
    "python -m tiny_models list": "qwen3_moe",
    "python -m tiny_models": "usage",
}
"""Run as printed; what their output has."""
RUN_BY = {
    "test_printed.py::test_what_to_go_on_with_runs_as_printed": [RESUMED],
    "test_calibrate.py": ["python -m sweep.calibrate suite=resume_calibration"],
    "test_sync.py": ["MLFLOW_TRACKING_URI=http://server:5000 python -m sweep.sync outputs=outputs"],
    "test_printed.py::test_the_example_of_bisect_runs": [BISECT],
    "test_versus.py::test_the_built_in_trainer_is_compared_in_two_trees": [
        "python -m sweep.versus base=main suite=smoke"
    ],
    "test_bisect.py::test_what_git_is_asked_in_a_complaint_runs": [
        "git -C {} log shows them",
        "git -C {} merge-base names a commit that is before both",
    ],
    "test_completion.py::test_tab_completes_groups_choices_lists_and_enumerations": [
        'trainer-sweep -sc install=bash)", for trainer-sweep'
    ],
    "test_baseline.py": ["sweep.baseline pin SWEEP"],
    "test_history.py::test_the_command_tells_the_nights_that_are_recorded": [
        "python -m sweep.history suite=nightly last=30"
    ],
    "test_locate_command.py": ["python -m sweep.locate case=llama-fsdp2_ep1-none sweep=latest"],
    "test_prune.py": ["python -m sweep.prune keep=90 outputs=outputs"],
    "test_merge.py": ["python -m sweep.merge outputs=shards into=merged"],
    "../hf_sft": ["python -m hf_sft with one process"],
    "../oracle": [
        "python -m oracle CHECKPOINT BATCHES...",
        "python -m oracle.export EXPORT CHECKPOINT BATCHES... --after N",
    ],
    "../tiny_models": [
        "python -m tiny_models qwen3_moe --scale nano --seed 0 --out checkpoint",
        "python -m tiny_models check-published",
    ],
}
"""The test, file or folder of tests that runs others."""
NAMES = {
    "python -m sweep",
    "python -m sweep -m ...)",
    "python -m sweep records a sweep",
    "python -m sweep.collect judges later",
    *(f"{lead}sweep.{name}" for name in SPELLED for lead in ("", "python -m ")),
}
"""A command's name alone: its --help is shown."""
LATER = "test_printed.py::test_what_records_later_runs_as_printed"
GOING_ON = "test_printed.py::test_what_to_go_on_with_runs_as_printed"
OF_WORDS = {
    ("sweep/store/recorder.py", "_command"): "test_store.py",
    ("sweep/commands.py", "spelled"): "test_commands.py",
    ("sweep/plan/earlier.py", "asked_for"): "test_slurm.py",
    ("sweep/report/result.py", "rerun_command"): "test_again.py",
    ("sweep/report/table.py", "_look_at"): "test_ui.py",
    ("sweep/revisions/repository.py", "kept"): "test_versus.py",
    ("sweep/session/again.py", "_as_asked"): "test_again.py",
    ("sweep/session/again.py", "_launched"): "test_again.py",
    ("sweep/session/again.py", "_joined"): "test_again.py",
    (
        "sweep/session/driver.py",
        "_say_what_is_missing",
    ): GOING_ON,
    (
        "sweep/store/location.py",
        "_move_away",
    ): LATER,
    ("sweep/store/location.py", "_check_place"): "test_sync.py",
    (
        "sweep/store/writer.py",
        "_failure",
    ): LATER,
    ("sweep/trainers/sft.py", "_answers"): "test_sft_adapter.py",
}
"""What spells a command of words that it is given: file and function -> the tests that run it."""


def test_every_command_in_a_text_has_a_test() -> None:
    known = {*PLANNED, *RECORDED, *SHORT, *itertools.chain(*RUN_BY.values()), *NAMES}
    new = {
        f"{file}:{line}: {text}" for (file, text), line in printed().items() if text not in known
    }
    assert new == set(), "add it to a table above, with what runs it"
    assert known - NAMES <= {text for _, text in printed()}, "no longer printed"


def test_every_function_that_spells_a_command_has_a_test() -> None:
    assert made() == set(OF_WORDS)


@pytest.mark.parametrize("where", sorted({*RUN_BY, *OF_WORDS.values()}))
def test_the_tests_that_run_the_others_are_there(where: str) -> None:
    file, _, name = where.partition("::")
    path = (Path(__file__).parent / file).resolve()
    assert path.exists()
    if name:
        functions = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef)
        ]
        assert name in [function.name for function in functions]


def run(command: str, cwd: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """A command as printed, in this folder, with this interpreter as `python`."""
    words = shlex.split(command, comments=True)
    assert words[0] == "python"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, *words[1:], *more],
        cwd=cwd,
        env=env,
        timeout=300,
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(PLANNED))
def test_a_sweep_in_a_text_is_planned_as_printed(command: str, tmp_path: Path) -> None:
    more = ["plan=true"] if "plan=true" not in command else []
    if " -m " not in command.removeprefix("python -m sweep"):
        more.append("-m")
    done = run(command, tmp_path, *more)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+ cases?", done.stdout), done.stdout


@pytest.mark.slow
def test_commands_on_what_is_recorded_run_as_printed(
    outputs: Path, make_facts: Callable[..., Facts]
) -> None:
    for day in (1, 2):
        night(outputs, day, make_facts())
    for folder in outputs.glob("2*"):
        ended(folder)
    for command, code in RECORDED.items():
        done = run(command, outputs.parent)
        assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(SHORT))
def test_a_short_command_runs_as_printed(command: str, tmp_path: Path) -> None:
    done = run(command.partition(" shows")[0].partition(" lists them")[0], tmp_path)
    assert SHORT[command] in (done.stdout + done.stderr).lower()
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("module", SPELLED)
def test_a_command_that_is_named_has_a_help(module: str, tmp_path: Path) -> None:
    done = run(f"python -m sweep.{module} --help", tmp_path)
    assert done.returncode == 0
    assert f"python -m sweep.{module}" in done.stdout


@pytest.mark.slow
def test_the_example_of_bisect_runs(tmp_path: Path) -> None:
    """As printed, but for the sweep that has the case: that one is in the folder of results."""
    repo = tmp_path / "trainer"
    history(repo, [{"train.py": TRAINER, "rates.py": "OFF = 0.0\n"}, {"rates.py": "OFF = 0.5\n"}])
    git(repo, "tag", "v1.2", "HEAD~1")
    words = [
        word.replace("feature=none", "feature=base")
        for word in words_for(str(repo / "train.py"), repo / "outputs")
    ]
    planned_sweep(repo / "outputs", [*words, "feature.compile=false"], ("single", "cp4_ep4"))
    done = run(BISECT, repo)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"first bad commit: {git(repo, 'rev-parse', 'HEAD')[:9]}" in done.stdout


@pytest.mark.slow
def test_what_to_go_on_with_runs_as_printed(
    planned: list[Planned], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its trainer does nothing, and so fails."""

    def fail() -> None:
        raise MachineryError("no space left")

    session = Session.begin(planned, Machine(), live=False, argv=["-m"])
    assert session.execute(fail) == 3
    printed = capsys.readouterr().err.partition("to go on: ")[2].strip()
    for command in (printed, RESUMED):
        done = run(command, tmp_path)
        assert done.returncode == 1, done.stderr
        assert "2 crashed" in done.stdout


@pytest.mark.slow
def test_what_records_later_runs_as_printed(
    outputs: Path, make_facts: Callable[..., Facts], tmp_path: Path
) -> None:
    night(outputs, 1, make_facts())
    location = Location.at(outputs)
    said = [str(location.said("database disk image is malformed"))]
    writer = Writer(location, outputs / "20260101-000000")
    said.append(str(writer._failure("it is down")))
    for text in said:
        (printed,) = re.findall(r"python -m sweep\.sync outputs=[^ ;]+", text)
        done = run(printed, tmp_path)
        assert done.returncode == 0, done.stderr
