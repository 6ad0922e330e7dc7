from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep import facts as facts_file
from sweep.checks import Context
from sweep.facts import Facts, Step
from sweep.files import write_json
from sweep.judge import judge
from sweep.report import Result
from sweep.store import Location, Writer
from tests.sweep.conftest import CASE

Make = Callable[..., Facts]
SWEEP = "20260102-000000"
ABOUT = {"git_sha": "abc", "git_dirty": "false", "torch": "2.13.0"}


def record(
    outputs: Path, *all_facts: Facts, sweep_id: str = SWEEP, experiment: str = "adhoc",
    began: float | None = None,
) -> Writer:  # fmt: skip
    writer = Writer.at(outputs, experiment)
    writer.begin(sweep_id, ABOUT, began)
    results = []
    for number, facts in enumerate(all_facts):
        folder = outputs / sweep_id / f"{facts.case.id}{number}"
        facts_file.save(facts, folder)
        write_json(folder / "case.json", {})
        results.append(Result(judge(facts, Context()), folder, "python -m sweep", facts))
        writer.record(results[-1])
    writer.finish(results, interrupted=False)
    return writer


def test_a_case_is_a_run_with_the_names_of_the_design(outputs: Path, make_facts: Make) -> None:
    from mlflow import MlflowClient

    wild = [Step(step=n, loss=math.nan if n == 4 else 3.0 - n, grad_norm=1.0, params_moved=1.0)
            for n in range(1, 6)]  # fmt: skip
    assert record(outputs, make_facts(), make_facts(wild)).problem is None
    client = MlflowClient(f"sqlite:///{outputs}/mlflow.db")
    experiment = client.get_experiment_by_name("adhoc")
    assert experiment is not None

    def runs(query: str) -> list:
        return client.search_runs([experiment.experiment_id], query)

    (good,) = runs("tags.kind = 'case' and tags.verdict = 'passed' and params.arch = 'llama'")
    assert good.info.status == "FINISHED"
    assert good.info.run_name == f"01-02 {CASE.id}"
    losses = client.get_metric_history(good.info.run_id, "train/loss")
    assert [(metric.step, metric.value) for metric in losses] == [
        (n, pytest.approx(3 - 0.1 * n)) for n in range(1, 6)
    ]
    assert good.data.metrics["loss/finite"] == 1.0
    assert good.data.metrics["time/total_seconds"] == 10.0
    assert good.data.tags["check.exit"] == good.data.tags["check.alive"] == "pass"
    assert good.data.tags["sweep_id"] == "20260102-000000"
    assert good.data.tags["git_sha"] == "abc"
    assert "python -m sweep" in good.data.tags["mlflow.note.content"]
    names = {file.path for file in client.list_artifacts(good.info.run_id)}
    assert names == {"case.json", "facts.json"}

    (bad,) = runs("tags.kind = 'case' and tags.verdict = 'failed'")
    assert bad.info.status == "FAILED"
    assert bad.data.metrics["loss/finite"] == 0.0
    assert "loss is nan at step 4" in bad.data.tags["mlflow.note.content"]
    same_step = client.get_metric_history(bad.info.run_id, "train/grad_norm")[0].timestamp
    assert same_step == losses[0].timestamp  # the UI overlays curves by time

    (sweep,) = runs("tags.kind = 'sweep'")
    assert sweep.info.status == "FAILED"
    assert sweep.info.run_name == "01-02 adhoc"
    assert "1 passed, 1 failed" in sweep.data.tags["mlflow.note.content"]


def test_a_store_that_cannot_be_reached_costs_no_result(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    store = record(outputs, make_facts())
    assert store.problem is not None
    assert "on disk but not in MLflow (http://127.0.0.1:9)" in store.problem


@pytest.mark.parametrize("uri", ["http://host:5000", "sqlite:////tmp/x.db", "postgresql://host/db"])
def test_a_server_or_a_database_is_a_store(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert Location.at(Path("outputs")).uri == uri
