"""What Hydra's own settings promise: a sweep honours each with -m as without, or refuses it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from sweep import schema
from sweep.case import file as case_file
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.cli.app import main
from sweep.files import ConfDirs, conf_dir
from sweep.plan import env_set, plan_one, quoted
from sweep.run import job, warm
from sweep.session import foreground
from sweep.session.driver import Session
from tests.sweep.commands import sweep
from tests.sweep.test_complaints import CASE, complaint

TRAINER = """\
import json, os, sys
for step in range(1, int(sys.argv[2]) + 1):
    with open(sys.argv[1] + "/metrics.jsonl", "a") as file:
        print(json.dumps({"step": step, "loss": 3 - step / 10, "grad_norm": 1.0, "lr": 1e-4,
                          "tokens": 100, "params_moved": 1.0}), file=file)
with open(sys.argv[1] + "/mark", "w") as file:
    file.write(os.environ["MARK"])
"""
CALLBACKS = """\
from hydra.experimental.callback import Callback

class Ends(Callback):
    def __init__(self, file):
        self.file = file

    def note(self, word):
        with open(self.file, "a") as file:
            print(word, file=file)

    def on_multirun_start(self, config, **_):
        self.note("multirun_start")

    def on_multirun_end(self, config, **_):
        self.note("multirun_end")

    def on_run_end(self, config, **_):
        self.note("run_end")

class Jobs(Ends):
    def on_job_end(self, config, job_return, **_):
        self.note(f"job_end {job_return.return_value}")
"""
MARK = "it's 1, 2"
UNKNOWN = "hydra_callbacks_of_a_test"


@pytest.fixture
def callback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The overrides that add a callback, less its class."""
    (tmp_path / f"{UNKNOWN}.py").write_text(CALLBACKS)
    monkeypatch.syspath_prepend(tmp_path)
    return [f"+hydra.callbacks.mine.file={tmp_path}/called",
            f"+hydra.callbacks.mine._target_={UNKNOWN}."]  # fmt: skip


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["sweep", *arguments])
    return main()


def program(folder: Path) -> list[str]:
    (folder / "trains.py").write_text(TRAINER)
    argv = f'["{{python}}","{folder}/trains.py","{{output_dir}}","{{steps}}"]'
    return [*CASE, "feature=none", "trainer=command", f"trainer.argv={argv}"]


@pytest.mark.slow
def test_env_set_reaches_the_trainer_of_a_sweep_and_of_a_case(
    outputs: Path, tmp_path: Path
) -> None:
    words = [*program(tmp_path), f"outputs={outputs}", "+hydra.job.env_set.MARK=m1"]
    for mode in (["-m"], []):
        done = sweep(*mode, *words)
        assert done.returncode == 0, done.stderr
    marks = sorted(outputs.glob("*/*/launches/1_train/mark"))
    assert [mark.read_text() for mark in marks] == ["m1", "m1"]
    planned = [json.loads(path.read_text()) for path in outputs.glob("*/*/case.json")]
    assert [one["overrides"][-1] for one in planned] == ["++hydra.job.env_set.MARK='m1'"] * 2


def test_a_case_is_composed_again_with_its_environment_unless_another_is_given() -> None:
    words = [*CASE, "trainer=command", "trainer.argv=[true]"]
    one = plan_one(words, with_hydra([*words, f"+{env_set.KEY}.MARK={quoted(MARK)}"]), Machine())
    assert one.env == {"MARK": MARK}
    again = plan_one(one.overrides, with_hydra(one.overrides), Machine())
    assert (again.env, again.overrides) == (one.env, one.overrides)
    assert env_set.left_out(one.overrides, {"MARK": "2"}) == words


def with_hydra(overrides: Sequence[str]) -> DictConfig:
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("config", [*overrides], return_hydra_config=True)


def test_a_job_with_an_environment_of_its_own_is_forked_from_no_server_of_the_sweep(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = [*CASE, f"outputs={tmp_path}"]
    plain = plan_one(words, with_hydra(words), Machine())
    one = plan_one(words, with_hydra([*words, "+hydra.job.env_set.MARK=1"]), Machine())
    session: Any = SimpleNamespace(runnable=[one], machine=Machine(), folder=tmp_path,
                                   _ending=ExitStack())  # fmt: skip
    assert warm.program_of(plain.settings)
    assert Session.start_servers(session)[warm.SERVERS] == "{}"

    case_file.write(one, tmp_path / "a_sweep" / one.case.id)
    monkeypatch.setenv(warm.SERVERS, "{}")
    monkeypatch.setenv("MARK", "before")
    seen: dict[str, str] = {}
    monkeypatch.setattr(job, "run_case", lambda *_: seen.update(os.environ))
    job.run_job(replace(one.settings, sweep_id="a_sweep"))
    assert seen["MARK"] == "1"
    assert warm.SERVERS not in seen


def test_params_of_the_sweeper_are_choices_that_the_command_line_replaces(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [*program(tmp_path), f"outputs={tmp_path}", "plan=true", "-m",
             '+hydra.sweeper.params.seed="1,2"']  # fmt: skip
    assert run(monkeypatch, *words) == 0
    shown = capsys.readouterr().out
    assert "llama-single-none-seed_1" in shown
    assert "llama-single-none-seed_2" in shown
    assert run(monkeypatch, *words, "seed=3") == 0
    assert "1 cases" in capsys.readouterr().out


def test_callbacks_are_called_at_the_end_of_a_sweep_and_of_a_case(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, callback: list[str], outputs: Path
) -> None:
    words = [*CASE, "trainer=command", "trainer.argv=[true]", f"outputs={outputs}"]
    callback[-1] += "Ends"
    assert run(monkeypatch, "-m", *words, *callback, "plan=true") == 0
    assert (tmp_path / "called").read_text().split() == ["multirun_start", "multirun_end"]
    (tmp_path / "called").unlink()
    callback[-1] = callback[-1].replace("Ends", "Jobs")
    assert run(monkeypatch, *words, *callback, "steps=0") == 2  # refused, and yet they are called
    assert (tmp_path / "called").read_text().split("\n")[:2] == ["job_end 2", "run_end"]


def test_callbacks_that_run_in_a_job_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], callback: list[str]
) -> None:
    callback[-1] += "Jobs"
    said = complaint(monkeypatch, capsys, "-m", *CASE, *callback)
    assert "Jobs has on_job_end, which -m does not call" in said
    assert "use on_multirun_start or on_multirun_end" in said


@pytest.mark.parametrize(
    ("override", "step"),
    [
        ("hydra.sweep.dir=elsewhere", "say outputs=FOLDER"),
        ("hydra.sweep.subdir=x", "a case's folder has the name of the case"),
        ("hydra.run.dir=elsewhere", "say outputs=FOLDER"),
        ("hydra.job.chdir=true", "run where the sweep was started"),
        ("hydra.output_subdir=.hydra", "case.json and sweep.json have what was composed"),
        ("hydra/job_logging=default", "each case's logs are in its folder"),
        ("hydra.sweeper.max_batch_size=2", "say launch.slots=N, or on Slurm hydra.launcher.array"),
        ("hydra.launcher.submitit_folder=x", "say outputs=FOLDER"),
        ("hydra.launcher.nodes=2", "the layout says it"),
        ("hydra.launcher.tasks_per_node=2", "a job is one task"),
        ("hydra.launcher.mem_gb=8", "is for hydra/launcher=slurm"),
        ("+hydra.sweeper.params.suite=smoke", "say suite=... instead"),
        ("+hydra.sweeper.params.outputs=x", "say outputs=... instead"),
        ("hydra/launcher=basic", "choose hydra/launcher=local"),
        ("hydra/launcher=submitit_local", "choose hydra/launcher=local"),
        ("hydra/launcher=submitit_slurm", "choose hydra/launcher=slurm"),
    ],
)
def test_what_a_sweep_would_ignore_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    override: str, step: str,
) -> None:  # fmt: skip
    words = ("-m", *CASE, "trainer=command", "trainer.argv=[true]", f"outputs={tmp_path}/outputs")
    said = complaint(monkeypatch, capsys, *words, override)
    assert step in said
    assert said.replace("/", ".").startswith(f"sweep: {override[:9].lstrip('+').replace('/', '.')}")
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    "override",
    ["hydra.sweep.dir=elsewhere", "hydra.sweeper.max_batch_size=2", "hydra/launcher=slurm",
     "hydra.launcher.timeout_min=3", "+hydra.sweeper.params.seed=1"],
)  # fmt: skip
def test_what_only_a_sweep_honours_asks_for_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    override: str,
) -> None:  # fmt: skip
    words = (*CASE, "trainer=command", "trainer.argv=[true]", f"outputs={tmp_path}/outputs")
    said = complaint(monkeypatch, capsys, *words, override)
    assert said == f"sweep: {override}: is about a sweep: add -m (python -m sweep -m ...)"


def test_a_case_keeps_the_folder_that_it_was_composed_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planned: list[Planned] = []
    monkeypatch.setattr(foreground, "run", lambda one, *_: planned.append(one) or 0)
    for folder in ([], ["--config-dir", str(tmp_path)]):
        assert run(monkeypatch, *CASE, "trainer=command", "trainer.argv=[true]", *folder) == 0
    assert [one.config_dir for one in planned] == [None, str(tmp_path)]


ENTRY_POINTS = (  # what a person, torchrun or Slurm starts
    "__init__.py", "__main__.py", "cli/", "baseline.py", "slurm/nodes.py", "store/guard.py",
    "run/supervisor.py", "revisions/probe.py", "versus.py",
)  # fmt: skip


def test_entry_points_alone_read_the_command_line() -> None:
    package = Path(schema.__file__).parents[1]
    for path in package.glob("**/*.py"):
        name = str(path.relative_to(package))
        if not name.startswith(ENTRY_POINTS) and not name.endswith("__main__.py"):
            assert "sys.argv" not in path.read_text(), name


def test_the_library_reads_a_folder_that_it_is_given_and_no_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["judge", "--config-dir", str(tmp_path)])
    (tmp_path / "thresholds.yaml").touch()
    own = ConfDirs.having(str(tmp_path))
    assert own.files("thresholds.yaml")[-1] == tmp_path / "thresholds.yaml"
    assert ConfDirs().files("thresholds.yaml") == [conf_dir() / "thresholds.yaml"]
