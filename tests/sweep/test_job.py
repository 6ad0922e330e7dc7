"""One case in its job: what it needs to start, and what it leaves however it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import cloudpickle
import pytest

from sweep import facts as facts_file
from sweep import trainers
from sweep.case import file as case_file
from sweep.case.labels import settings_of
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.processes import JOB_MARKER
from sweep.run import job
from tests.sweep.commands import DUMMY_TRAINER, TRAINER, sweep
from tests.sweep.planning import COMMAND, composed, planned

_FRESH = """\
import cloudpickle, sys
call, settings = cloudpickle.load(open(sys.argv[1], "rb"))
print(call.__name__, settings.arch.name, settings.trainer.adapter)
print([name for name in ("hydra", "mlflow", "torch", "transformers") if name in sys.modules])
"""


@pytest.fixture
def one(tmp_path: Path) -> Planned:
    (one,) = planned(["arch=llama", "layout=single", f"outputs={tmp_path}"])
    one.settings.sweep_id = "20260101-000000"
    case_file.write(one, folder_of(one))
    return one


def folder_of(one: Planned) -> Path:
    return Path(one.settings.outputs) / str(one.settings.sweep_id) / one.case.id


@pytest.mark.parametrize("trainer", [("trainer=sft",), ("trainer=hf_trainer",), COMMAND])
def test_a_job_is_pickled_small_and_starts_without_what_is_slow_to_import(
    tmp_path: Path, trainer: tuple[str, ...]
) -> None:
    settings = settings_of(composed(["arch=llama", "layout=single", *trainer]), Machine())
    path = tmp_path / "job.pkl"
    path.write_bytes(cloudpickle.dumps((job.run_job, settings)))
    done = subprocess.run([sys.executable, "-c", _FRESH, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    called, heavy = done.stdout.splitlines()
    assert called.startswith("run_job llama ")
    assert heavy == "[]"
    assert path.stat().st_size < 10_000


def test_an_exception_that_cannot_be_pickled_is_told_in_words(
    one: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LockedError(Exception):
        def __init__(self, text: str) -> None:
            super().__init__(text)
            self.lock = threading.Lock()

    def fail(_settings: object) -> object:
        raise LockedError("no adapter today")

    monkeypatch.setattr(trainers, "of", fail)
    job.run_job(one.settings)
    facts = facts_file.load(folder_of(one))
    assert facts is not None
    assert facts.error == "LockedError: no adapter today"
    assert "LockedError" in (folder_of(one) / "error.log").read_text()


def test_a_job_that_is_started_again_runs_nothing(
    one: Planned, capsys: pytest.CaptureFixture[str]
) -> None:
    job.run_job(one.settings)
    first = (folder_of(one) / "facts.json").read_bytes()
    job.run_job(one.settings)
    assert (folder_of(one) / "facts.json").read_bytes() == first
    assert "it is not run twice" in capsys.readouterr().out


@pytest.mark.slow
def test_jobs_at_once_see_gpus_of_their_own_among_those_of_the_parent(
    outputs: Path, tmp_path: Path
) -> None:
    tool = tmp_path / "nvidia-smi"  # four GPUs
    tool.write_text('#!/bin/sh\nfor n in 0 1 2 3; do echo "GPU $n: none (UUID: GPU-$n)"; done\n')
    tool.chmod(0o755)
    done = sweep(
        "-m", "arch=llama,qwen3", "layout=fsdp2_ep2", *DUMMY_TRAINER,
        TRAINER.replace("{behaviour}", "ok"), f"outputs={outputs}",
        PATH=f"{tmp_path}{os.pathsep}{os.environ['PATH']}", CUDA_VISIBLE_DEVICES="5,3,7,1",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    environments = [json.loads(path.read_text()) for path in outputs.rglob("environment.json")]
    assert {one["CUDA_VISIBLE_DEVICES"] for one in environments} == {"5,3", "7,1"}
    assert len({one[JOB_MARKER] for one in environments}) == 2
