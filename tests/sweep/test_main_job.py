"""The main job for real: tiny checkpoints, the built-in trainer on four ranks, MLflow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sweep.commands import ROOT, sweep

pytestmark = pytest.mark.slow


def test_the_main_job_ends_with_two_passed_cases_of_five_losses(outputs: Path) -> None:
    from mlflow import MlflowClient

    done = sweep(
        "-m", "arch=qwen3_moe,gpt_oss", "layout=cp4_ep4", f"outputs={outputs}", seconds=800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "running, step 5 of 5" in done.stdout
    client = MlflowClient(f"sqlite:///{outputs}/mlflow.db")
    experiment = client.get_experiment_by_name("adhoc")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id], "tags.kind = 'case'")
    assert {run.data.tags["case_id"] for run in runs} == {
        "qwen3_moe-cp4_ep4-base", "gpt_oss-cp4_ep4-base",
    }  # fmt: skip
    for run in runs:
        assert run.data.tags["verdict"] == "passed"
        losses = client.get_metric_history(run.info.run_id, "train/loss")
        assert [metric.step for metric in losses] == [1, 2, 3, 4, 5]
        assert len({metric.value for metric in losses}) == 5


def test_a_trainer_broken_on_purpose_is_a_readable_report(outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('RANK') == '2': sys.exit('broken on purpose')\n"
    )
    done = sweep(
        "-m", "arch=llama", "layout=cp4_ep4", f"outputs={outputs}", "launch.mode=cold",
        f"+trainer.env.PYTHONPATH='{tmp_path}:{ROOT}'",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    said = " ".join(done.stdout.split())
    assert "llama-cp4_ep1-base: crashed exit: train: exit code 1 before its first step" in said
    assert "rank 2 failed first" in said
    assert "end of the log of rank 2:" in said
    assert "broken on purpose" in said
    assert "1 crashed" in done.stdout
    facts = json.loads(next(outputs.glob("*/*/facts.json")).read_text())
    assert facts["launches"][0]["failed_rank"] == 2
