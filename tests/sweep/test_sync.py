"""Recording later what MLflow could not take at the time."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from sweep.case.folder import LEFT, end, this_driver
from sweep.facts import Facts
from sweep.store import Location, Reader, guard
from sweep.store.ending import end_dead_runs
from sweep.store.recorder import Recorder
from tests.sweep.conftest import CASE
from tests.sweep.recording import (
    DEAD,
    SWEEP,
    ended,
    judge_again,
    named,
    record,
    sweep_folder,
    synced,
)

Make = Callable[..., Facts]


@pytest.fixture
def unrecorded(outputs: Path, make_facts: Make) -> Path:
    """A sweep of three cases that is on disk alone; one of them was interrupted."""
    cases = [make_facts(), named(make_facts(exit_code=1), "other", started=100.0),
             named(make_facts(), "stopped", interrupted=True)]  # fmt: skip
    sweep_folder(outputs, *cases)
    ended(outputs / SWEEP)
    return outputs


def runs(outputs: Path) -> list[tuple[str, str, str]]:
    """Kind, case and status of every run."""
    client = Location.at(outputs).client
    experiments = [one.experiment_id for one in client.search_experiments()]
    found = client.search_runs(experiments)
    return sorted(
        (run.data.tags["kind"], run.data.tags.get("case_id", ""), run.info.status) for run in found
    )


EVERYTHING = [
    ("case", CASE.id, "FINISHED"),
    ("case", "other", "FAILED"),
    ("case", "stopped", "KILLED"),
    ("sweep", "", "KILLED"),
]


def test_results_are_recorded_once_however_often_it_runs(
    unrecorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert synced(unrecorded) == 0
    assert capsys.readouterr().out == f"{SWEEP}: 3 cases recorded\n"
    assert runs(unrecorded) == EVERYTHING
    assert synced(unrecorded) == 0
    assert capsys.readouterr().out == f"{SWEEP}: is recorded\n"
    assert runs(unrecorded) == EVERYTHING
    reader = Reader.at(unrecorded)
    good, *_ = reader.cases(reader.find(SWEEP))
    assert "1 passed, 1 crashed" in reader.find(SWEEP).tags["mlflow.note.content"]
    history = reader.location.client.get_metric_history(good.run_id, "train/loss")
    assert [metric.step for metric in history] == [1, 2, 3, 4, 5]


def test_a_sweep_is_judged_with_the_folder_that_it_ran_with(
    outputs: Path, make_facts: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    (own / "known_failures.yaml").write_text(
        f'[{{case: {CASE.id}, check: exit, message: "1", issue: "https://example.org"}}]'
    )
    sweep_folder(outputs, make_facts(exit_code=1), config_dir=str(own))
    ended(outputs / SWEEP)
    assert synced(outputs) == 0
    reader = Reader.at(outputs)
    assert reader.cases(reader.find(SWEEP))[0].tags["verdict"] == "known"
    assert "judged without" not in capsys.readouterr().err


def test_a_folder_that_is_gone_is_told(
    outputs: Path, make_facts: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_folder(outputs, make_facts(exit_code=1), config_dir=str(tmp_path / "gone"))
    ended(outputs / SWEEP)
    assert synced(outputs) == 0
    assert f"known failures of --config-dir {tmp_path}/gone" in capsys.readouterr().err


def test_a_damaged_sweep_keeps_no_other_from_being_recorded(
    unrecorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (unrecorded / "damaged").mkdir()
    (unrecorded / "damaged" / "sweep.json").write_text("{")
    assert synced(unrecorded) == 2
    said = capsys.readouterr()
    assert f"{SWEEP}: 3 cases recorded" in said.out
    assert "damaged/sweep.json: " in said.err
    assert said.err.endswith("move the sweep's folder away\n")


def test_what_a_lost_store_had_is_recorded_again(unrecorded: Path, empty_store: Path) -> None:
    assert synced(unrecorded) == 0
    (unrecorded / "mlflow.db").unlink()
    shutil.copy(empty_store, unrecorded / "mlflow.db")
    Location.at(unrecorded).client._tracking_client.store.engine.dispose()  # MLflow keeps the old
    assert synced(unrecorded) == 0
    assert runs(unrecorded) == EVERYTHING


def test_what_another_store_holds_is_recorded_in_this_one_too(
    unrecorded: Path, tmp_path: Path, empty_store: Path
) -> None:
    assert synced(unrecorded) == 0
    home = tmp_path / "home"  # results that came from another machine, without its store
    shutil.copytree(unrecorded, home, ignore=shutil.ignore_patterns("mlflow.db*", "artifacts"))
    shutil.copy(empty_store, home / "mlflow.db")
    assert synced(home) == 0
    assert runs(home) == runs(unrecorded)


def copied(outputs: Path, home: Path, *left: str) -> Path:
    """Results with their store on another machine, where nothing is at their old place."""
    from mlflow.tracking._tracking_service import utils

    utils._artifact_repos_cache.clear()  # what this process knows, another one does not
    shutil.copytree(outputs, home, ignore=shutil.ignore_patterns("*.lock", *left))
    outputs.rename(outputs.with_name("another machine's"))
    return home


def test_a_store_that_came_with_its_folder_is_refused_until_it_is_linked_or_made_anew(
    unrecorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert synced(unrecorded) == 0
    home = copied(unrecorded, tmp_path / "home")
    for command in (judge_again, synced):
        assert command(home) == 3
        assert f"ln -s {home} {unrecorded}), or move {home}/mlflow.db away" in (
            capsys.readouterr().err
        )
    unrecorded.symlink_to(home)
    assert judge_again(home) == 1
    unrecorded.unlink()
    anew = tmp_path / "anew"  # a new name: this process keeps MLflow's connection to the old file
    shutil.copytree(home, anew, ignore=shutil.ignore_patterns("mlflow.db*"))
    (anew / "damaged").mkdir()
    (anew / "damaged" / "sweep.json").write_text("{")
    assert synced(anew) == 2  # for the damaged one alone
    assert runs(anew) == EVERYTHING
    reader = Reader.at(anew)
    assert [case.facts is not None for case in reader.cases(reader.find(SWEEP))] == [True] * 3
    assert not unrecorded.exists()


def test_a_sweep_that_ended_is_over_however_its_folder_was_copied(unrecorded: Path) -> None:
    """A copy's times say nothing: sweep.json may be the newer file."""
    ended(unrecorded / SWEEP, f"other:1:{time.time()}")
    (unrecorded / SWEEP / "summary.md").write_text("")
    assert synced(unrecorded) == 0
    assert runs(unrecorded) == []
    end(unrecorded / SWEEP)
    assert synced(unrecorded) == 0
    assert runs(unrecorded) == EVERYTHING


@pytest.mark.slow
def test_the_run_of_a_sweep_that_was_killed_at_its_very_end_is_ended(unrecorded: Path) -> None:
    assert synced(unrecorded) == 0
    reader = Reader.at(unrecorded)
    reader.location.client.update_run(reader.find(SWEEP).run_id, status="RUNNING")
    (unrecorded / SWEEP / "recorded.json").unlink()
    assert synced(unrecorded) == 0
    assert runs(unrecorded) == EVERYTHING


@pytest.mark.parametrize("cut", ["log_batch", "log_artifact", "set_terminated", "create_run"])
def test_what_was_cut_halfway_is_taken_up_and_not_doubled(
    unrecorded: Path, cut: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Also where the store did it and its answer was lost."""
    from mlflow import MlflowClient

    done, real = [], getattr(MlflowClient, cut)

    def lost(*arguments: Any, **more: Any) -> Any:
        answer = real(*arguments, **more)
        done.append(answer)
        if len(done) >= 3:
            raise ConnectionError("the answer is lost")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, cut, lost)
        assert synced(unrecorded) == 3
    assert "Traceback" not in capsys.readouterr().err
    assert synced(unrecorded) == 0
    assert runs(unrecorded) == EVERYTHING


def test_a_store_that_is_down_is_exit_3_and_loses_nothing(
    unrecorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        assert synced(unrecorded) == 3
    assert "not in MLflow (http://127.0.0.1:9)" in capsys.readouterr().err
    assert synced(unrecorded) == 0
    assert runs(unrecorded) == EVERYTHING


def test_a_run_that_was_replaced_is_recorded_as_such(unrecorded: Path, make_facts: Make) -> None:
    aside = unrecorded / SWEEP / ".earlier" / "other" / "1"
    sweep_folder(unrecorded / "elsewhere", named(make_facts(exit_code=2), "other", started=50.0))
    aside.parent.mkdir(parents=True)
    (unrecorded / "elsewhere" / SWEEP / "other").rename(aside)
    assert synced(unrecorded) == 0
    assert runs(unrecorded) == sorted([*EVERYTHING, ("case", "other", "FAILED")])
    reader = Reader.at(unrecorded)
    sweep = reader.find(SWEEP)
    latest = {case.case_id: case for case in reader.cases(sweep)}["other"]
    assert latest.started == 100.0
    (old,) = reader.location.client.search_runs([sweep.experiment_id], "tags.superseded LIKE '%'")
    assert old.info.start_time == 50_000
    assert old.data.tags["superseded"] == latest.run_id


def test_a_sweep_that_runs_or_never_ran_is_left_alone(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep_folder(outputs, make_facts())
    assert synced(outputs) == 0
    assert "still runs; its own process records it" in capsys.readouterr().out
    ended(outputs / SWEEP)
    (outputs / SWEEP / CASE.id / "facts.json").unlink()
    assert synced(outputs) == 0
    assert "nothing ran" in capsys.readouterr().out
    assert runs(outputs) == []


def test_a_sweep_of_another_machine_is_over_after_a_day(outputs: Path, make_facts: Make) -> None:
    sweep_folder(outputs, make_facts(), named(make_facts(), "other"))
    (outputs / SWEEP / "other" / "facts.json").unlink()
    ended(outputs / SWEEP, f"no-such-host:1:{time.time() - 3600}")
    assert synced(outputs) == 0
    assert runs(outputs) == []
    ended(outputs / SWEEP, f"no-such-host:1:{time.time() - 90_000}")
    assert synced(outputs) == 0
    assert runs(outputs) == [("case", CASE.id, "FINISHED"), ("sweep", "", "KILLED")]


def test_a_detached_sweep_is_not_ended_by_it(outputs: Path, make_facts: Make) -> None:
    sweep_folder(outputs, make_facts(), named(make_facts(), "waits"))
    (outputs / SWEEP / "waits" / "facts.json").unlink()
    ended(outputs / SWEEP, LEFT)
    assert synced(outputs) == 0
    assert runs(outputs) == [("case", CASE.id, "FINISHED"), ("sweep", "", "SCHEDULED")]


def test_the_run_of_a_killed_sweep_is_ended_by_whoever_comes_next(
    outputs: Path, make_facts: Make
) -> None:
    sweep_folder(outputs, make_facts())
    recorder = Recorder(Location.at(outputs), outputs / SWEEP)
    recorder.location.client.set_tag(recorder.parent, "driver", DEAD)
    assert runs(outputs) == [("sweep", "", "RUNNING")]
    record(outputs, make_facts(), sweep_id="20260103-000000")
    assert ("sweep", "", "KILLED") in runs(outputs)


def test_what_waits_beside_a_sweep_ends_its_runs_once_its_process_is_gone(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a store was too slow for what it was sent."""
    sweep_folder(outputs, make_facts())
    recorder = Recorder(Location.at(outputs), outputs / SWEEP)
    _ = recorder.parent
    monkeypatch.setattr(guard, "PATIENCE_SECONDS", 0.2)
    guard.main(outputs / SWEEP, this_driver())
    assert runs(outputs) == [("sweep", "", "RUNNING")]
    dead = f"{socket.gethostname()}:{2**22 + 1}:1.0"
    recorder.location.client.set_tag(recorder.parent, "driver", dead)
    guard.main(outputs / SWEEP, dead)
    assert runs(outputs) == [("sweep", "", "KILLED")]


def test_a_sweep_that_ended_a_moment_ago_is_not_taken_for_killed(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixteen sweeps at once in one server: one ends while another looks for dead ones."""
    record(outputs, make_facts())
    client, sweep = Location.at(outputs).client, Reader.at(outputs).find(SWEEP)
    client.set_tag(sweep.run_id, "driver", f"{socket.gethostname()}:{2**22 + 1}:1.0")
    client.update_run(sweep.run_id, status="RUNNING")
    seen = client.search_runs([sweep.experiment_id], "tags.kind = 'sweep'")
    client.update_run(sweep.run_id, status="FINISHED")
    with monkeypatch.context() as patch:
        patch.setattr(client, "search_runs", lambda *_: seen)
        end_dead_runs(client, sweep.experiment_id)
        assert Reader.at(outputs).find(SWEEP).status == "FINISHED"
        client.update_run(sweep.run_id, status="RUNNING")
        client.set_tag(sweep.run_id, "driver", this_driver())  # somebody goes on with it
        end_dead_runs(client, sweep.experiment_id)
    assert Reader.at(outputs).find(SWEEP).status == "RUNNING"
    client.set_tag(sweep.run_id, "driver", f"{socket.gethostname()}:{2**22 + 1}:1.0")
    end_dead_runs(client, sweep.experiment_id)
    assert Reader.at(outputs).find(SWEEP).status == "KILLED"


def test_two_at_once_are_refused(unrecorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with FileLock(unrecorded / ".sync.lock"):
        assert synced(unrecorded) == 2
    assert "another sweep.sync works on" in capsys.readouterr().err
    assert synced(unrecorded / "none") == 2
    assert "there is no such folder" in capsys.readouterr().err
