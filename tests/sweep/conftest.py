"""Fixtures: an MLflow store that is cheap to make, facts to judge, and a Slurm that says so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.case.identity import Identity
from sweep.case.labels import Case
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.facts import Facts, LaunchFacts, Metrics, Step
from sweep.plan import plan
from tests.sweep.planning import COMMAND, composed

CASE = Case(
    id="llama-cp4_ep1-base", arch="llama", layout="cp4_ep1", feature="base", trainer="command",
    scale="nano", device="cpu", dtype="float32", seed=0, steps=5, world_size=4,
)  # fmt: skip


Says = Callable[[str, str], None]


@pytest.fixture
def outputs(tmp_path: Path, empty_store: Path) -> Path:
    """An output folder whose store is ready."""
    folder = tmp_path / "outputs"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder


@pytest.fixture
def planned(outputs: Path) -> list[Planned]:
    """Two cases, of llama and qwen3."""
    combinations = [
        [f"arch={arch}", "layout=single", f"outputs={outputs}", *COMMAND]
        for arch in ("llama", "qwen3")
    ]
    return plan(combinations, composed, Machine())


@pytest.fixture
def make_facts() -> Callable[..., Facts]:
    """Facts of a good case; `steps` and the keywords of LaunchFacts change them."""

    def make(steps: list[Step] | None = None, **launch: object) -> Facts:
        good = [
            Step(step=n, loss=3 - 0.1 * n, grad_norm=1.0, lr=1e-4, tokens=100, params_moved=1.0)
            for n in range(1, 6)
        ]
        metrics = launch.pop("metrics", Metrics(steps=good if steps is None else steps))
        values = {
            "name": "train", "directory": "launches/1_train", "argv": ["trainer"],
            "first_step": 1, "last_step": 5, "exit_code": 0, "limit_seconds": 900.0,
            "started": 0.0, "seconds": 9.0, "metrics": metrics, **launch,
        }  # fmt: skip
        return Facts(
            sweep_id="20260101-000000", case=CASE, started=0.0, seconds=10.0, environment={},
            identity=Identity(settings={"optim.lr": 1e-4}, checkpoint="c1", data="d1"),
            vocab_size=1000, launches=[LaunchFacts.model_validate(values)],
        )  # fmt: skip

    return make


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Makes one of Slurm's commands a shell script."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def make(command: str, script: str) -> None:
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return make
