from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sweep.errors import MachineryError, RequestError
from sweep.facts import Facts, Step
from sweep.report.runs import run_of
from sweep.store import Location, Writer, entries
from tests.sweep.conftest import CASE
from tests.sweep.recording import SWEEP, record, sweep_folder

Make = Callable[..., Facts]


def test_a_case_is_a_run_with_the_names_of_the_design(outputs: Path, make_facts: Make) -> None:
    from mlflow import MlflowClient

    wild = [
        Step(step=n, loss=math.nan if n == 4 else 3.0 - n, grad_norm=1.0, params_moved=1.0)
        for n in range(1, 6)
    ]
    other = CASE.model_copy(update={"id": "other"})
    record(outputs, make_facts(), make_facts(wild).model_copy(update={"case": other}))
    client = MlflowClient(f"sqlite:///{outputs}/mlflow.db")
    experiment = client.get_experiment_by_name("adhoc")
    assert experiment is not None

    def runs(query: str) -> list:
        return client.search_runs([experiment.experiment_id], query)

    (good,) = runs("tags.kind = 'case' and tags.verdict = 'passed' and params.arch = 'llama'")
    assert good.info.status == "FINISHED"
    assert good.info.run_name == f"01-02 00:00 {CASE.id}"
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
    assert (good.data.tags["command"], good.data.tags["folder"]) == (
        "python -m sweep a=b",
        str(outputs / SWEEP / CASE.id),
    )

    (bad,) = runs("tags.kind = 'case' and tags.verdict = 'failed'")
    assert bad.info.status == "FAILED"
    assert bad.data.metrics["loss/finite"] == 0.0
    assert "loss is nan at step 4" in bad.data.tags["mlflow.note.content"]
    same_step = client.get_metric_history(bad.info.run_id, "train/grad_norm")[0].timestamp
    assert same_step == losses[0].timestamp  # the UI overlays curves by time

    (sweep,) = runs("tags.kind = 'sweep'")
    assert sweep.info.status == "FAILED"
    assert sweep.info.run_name == "01-02 00:00 adhoc"
    assert "1 passed, 1 failed" in sweep.data.tags["mlflow.note.content"]


def test_a_store_that_cannot_be_reached_costs_no_result(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://name:secret@127.0.0.1:9")
    with pytest.raises(MachineryError) as told:
        record(outputs, make_facts())
    assert "results are on disk but not in MLflow (http://127.0.0.1:9)" in str(told.value)
    assert f"python -m sweep.sync outputs={outputs}" in str(told.value)
    assert "secret" not in str(told.value)


def test_a_database_that_is_down_is_told_at_once(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql+psycopg2://name:secret@127.0.0.1:9/db")
    with pytest.raises(MachineryError, match=r"127.0.0.1:9/db does not answer: .* refused"):
        record(outputs, make_facts())


def test_an_experiment_that_was_deleted_is_told_with_what_brings_it_back(
    outputs: Path, make_facts: Make
) -> None:
    record(outputs, make_facts())
    client = Location.at(outputs).client
    client.delete_experiment("1")
    with pytest.raises(MachineryError, match=r"adhoc was deleted; .* restore -x 1"):
        record(outputs, make_facts(), sweep_id="20260103-000000")
    client.restore_experiment("1")
    record(outputs, make_facts(), sweep_id="20260103-000000")


@pytest.mark.parametrize("uri", ["http://host:5000", "sqlite:////tmp/x.db", "postgresql://host/db"])
def test_a_server_or_a_database_is_a_store(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert Location.at(Path("outputs")).uri == uri


@pytest.mark.parametrize("uri", ["outputs", "/tmp/mlruns", "file:///tmp/mlruns"])
def test_a_folder_is_refused_in_one_line_before_anything_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(RequestError, match=r"name a server .* or a database"):
        Location.at(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_case_that_did_not_pass_is_never_finished_and_has_an_end(
    outputs: Path, make_facts: Make
) -> None:
    ends = {
        "raised": make_facts(exit_code=1),
        "os_exit": make_facts(exit_code=255),
        "killed": make_facts(exit_code=-9),
        "hung": make_facts(timed_out=True, exit_code=None),
        "never_started": make_facts().model_copy(update={"launches": [], "error": "no checkpoint"}),
        "interrupted": make_facts().model_copy(update={"interrupted": True}),
        "wrong": make_facts([]),
    }
    cases = [
        facts.model_copy(update={"case": CASE.model_copy(update={"id": name})})
        for name, facts in ends.items()
    ]
    record(outputs, *cases)
    client = Location.at(outputs).client
    experiment = client.get_experiment_by_name("adhoc")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == len(ends) + 1
    for run in runs:
        stopped = run.data.tags.get("case_id") == "interrupted"
        assert run.info.status == ("KILLED" if stopped else "FAILED")
        assert run.info.end_time is not None


def test_what_is_too_long_for_mlflow_is_cut_there_and_whole_on_disk(
    outputs: Path, make_facts: Make
) -> None:
    long, traceback = "x" * 10_000, "é]" * 50_000
    facts = make_facts(exit_code=1, failed_rank=0, failure=traceback)
    (result,) = sweep_folder(outputs, facts)
    writer = Writer(Location.at(outputs), outputs / SWEEP)
    writer.record(replace(result, command=f"python -m sweep a={long}"))
    writer.settle()
    client = Location.at(outputs).client
    (run,) = client.search_runs(["1"], "tags.kind = 'case'")
    assert run.data.tags["command"] == f"python -m sweep a={long}"[:7900]
    note = run.data.tags["mlflow.note.content"]
    assert len(note) <= 7900
    assert "python -m sweep a=xxx" in note  # the message leaves room for the command
    for copy in (result.folder, Path(client.download_artifacts(run.info.run_id, ""))):
        assert traceback in (copy / "facts.json").read_text().encode().decode("unicode_escape")
        assert len((copy / "failure.md").read_text()) > 100_000


@given(st.text(min_size=1))
@example("/")
@example("..")
@example("../x")
@example("a" * 248 + "/./x")
def test_any_text_is_a_name_that_mlflow_takes(text: str) -> None:
    from mlflow.utils.validation import _validate_metric_name, _validate_tag_name

    _validate_metric_name(entries.name(text))
    _validate_tag_name(entries.name(text))


def test_a_password_is_in_no_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://me:secret@host:5432/db")
    assert Location.at(tmp_path).shown == "postgresql://host:5432/db"


def test_a_store_is_waited_for_no_longer_than_it_is_given(tmp_path: Path) -> None:
    writer = Writer(Location.at(tmp_path), tmp_path / SWEEP, patience=0.5)
    time.sleep(0.6)  # what others take is not the store's
    assert writer.call(lambda: 1) == 1
    began = time.monotonic()
    with pytest.raises(MachineryError, match=r"takes too long; python -m sweep.sync"):
        writer.call(lambda: time.sleep(3))
    assert time.monotonic() - began < 2
    with pytest.raises(MachineryError, match="it takes too long"):
        writer.call(lambda: 1)  # nothing is left


def test_a_pipe_among_the_results_is_not_waited_for(outputs: Path, make_facts: Make) -> None:
    (result,) = sweep_folder(outputs, make_facts())
    launch = result.folder / "launches" / "1_train"
    launch.mkdir(parents=True, exist_ok=True)
    os.mkfifo(launch / "metrics.jsonl")
    (launch / "launcher.log").write_text("trained")
    (launch / "config.toml").write_text("steps = 5")  # a trainer's own way to write it
    writer = Writer(Location.at(outputs), outputs / SWEEP, patience=60)
    writer.record(result)
    writer.settle()
    run = run_of(result.folder)
    assert run is not None
    files = Location.at(outputs).client.list_artifacts(run.run_id, "launches/1_train")
    assert [Path(file.path).name for file in files] == ["config.toml", "launcher.log"]
