"""Stores as teams have them: a server over SQLite or PostgreSQL, and ones that fail."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweep import report
from sweep.facts import Facts, Step
from sweep.files import ConfDirs
from sweep.session import closing
from sweep.store import End, Location, Reader, Writer
from tests.sweep import servers, writers
from tests.sweep.conftest import CASE
from tests.sweep.recording import SWEEP, ended, judge_again, named, record, sweep_folder, synced

pytestmark = pytest.mark.slow
Make = Callable[..., Facts]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of an MLflow server over each database."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("empty_store"), folder / "mlflow.db")
        with servers.mlflow_server(f"sqlite:///{folder}/mlflow.db", folder) as address:
            yield address
        return
    with servers.postgresql() as backend, servers.mlflow_server(backend, folder) as address:
        yield address


@pytest.fixture
def at_server(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    return server


def write_at_once(outputs: Path, count: int, steps: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.sweep.writers", str(outputs), str(count), str(steps)],
        capture_output=True, text=True, timeout=400, env={**os.environ},
    )  # fmt: skip


def assert_everything_is_there(outputs: Path, count: int, steps: int) -> None:
    reader = Reader.at(outputs)
    client = reader.location.client
    for number in range(count):
        expected = writers.facts_of(number, steps)
        sweep = reader.find(writers.sweep_id(number))
        assert sweep.status == "FINISHED"
        (case,) = reader.cases(sweep)
        assert case.facts == expected
        for key in ("loss", "grad_norm", "lr", "tokens", "step_seconds"):
            history = client.get_metric_history(case.run_id, f"train/{key}")
            found = {metric.step: metric.value for metric in history}
            assert found == {step.step: getattr(step, key) for step in expected.steps}
    runs = client.search_runs([sweep.experiment_id], "tags.sweep_id LIKE '20260102-0000%'")
    assert len(runs) == 2 * count


@pytest.mark.usefixtures("at_server")
def test_sixteen_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    done = write_at_once(tmp_path, 16, steps=40)
    assert done.returncode == 0, done.stderr
    assert "locked" not in done.stderr
    assert_everything_is_there(tmp_path, 16, steps=40)


def test_eight_writers_at_once_make_a_store_that_was_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    done = write_at_once(tmp_path, 8, steps=40)  # 200 metrics each
    assert done.returncode == 0, done.stderr
    assert_everything_is_there(tmp_path, 8, steps=40)


def test_another_machine_with_the_address_alone_comes_to_the_same_verdicts(
    at_server: str, tmp_path: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    wild = [
        Step(step=n, loss=math.nan if n == 3 else math.inf, grad_norm=-math.inf)
        for n in range(1, 6)
    ]
    loud = named(
        make_facts(exit_code=1, failed_rank=0, failure="\x1b[31mé'\"`|" + "x" * 100_000), "loud"
    )
    cases = [make_facts(), named(make_facts(wild), "wild"), loud]
    odd = 'night [ä] / "x"'
    here = record(tmp_path / "here", *cases, experiment=odd)
    verdicts = {one.case.id: one.judgement.verdict.value for one in here}
    assert verdicts == {CASE.id: "passed", "wild": "failed", "loud": "crashed"}
    assert len((here[2].folder / "failure.md").read_text()) > 100_000

    assert judge_again(tmp_path / "there", sweep=SWEEP, experiment=odd) == 1
    assert "1 passed, 1 failed, 1 crashed" in capsys.readouterr().out
    reader = Reader.at(tmp_path / "there")
    there = {case.case_id: case for case in reader.cases(reader.find(SWEEP, odd))}
    assert {case: one.tags["verdict"] for case, one in there.items()} == verdicts
    assert there["wild"].metrics["loss/finite"] == 0.0
    assert there["loud"].facts == loud
    assert max(len(value) for value in there["loud"].tags.values()) < 8000
    assert there["loud"].tags["mlflow.note.content"].count("python -m sweep") == 1
    page = f"{at_server}/ajax-api/2.0/mlflow/runs/get?run_id={there['wild'].run_id}"
    with urllib.request.urlopen(page, timeout=30) as answer:
        json.loads(answer.read(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@contextmanager
def black_hole() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(64)
        yield f"http://127.0.0.1:{hole.getsockname()[1]}"


def test_a_server_that_never_answers_costs_less_than_a_minute_and_no_result(
    outputs: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [named(make_facts(), f"case{number}") for number in range(8)]
    results = sweep_folder(outputs, *cases)
    with black_hole() as address, monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", address)
        began = time.monotonic()
        writer = Writer(Location.at(outputs), outputs / SWEEP)
        for result in results:
            writer.record(result)
        assert time.monotonic() - began < 1  # no case waits for it
        judged, problem = closing.close(writer, outputs / SWEEP, results, End(), ConfDirs())
        assert time.monotonic() - began < 60
    assert problem is not None
    assert report.exit_code(judged, problem) == 3
    assert "8 passed" in (outputs / SWEEP / "summary.md").read_text()
    ended(outputs / SWEEP)
    assert synced(outputs) == 0
    reader = Reader.at(outputs)
    assert len(reader.cases(reader.find(SWEEP))) == 8


def test_a_full_disk_costs_no_result(outputs: Path, make_facts: Make) -> None:
    results = sweep_folder(outputs, *(named(make_facts(), f"case{n}") for n in range(3)))
    room = (outputs / "mlflow.db").stat().st_size + 4096
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writer = Writer(Location.at(outputs), outputs / SWEEP)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        for result in results:
            writer.record(result)
        judged, problem = closing.close(writer, outputs / SWEEP, results, End(), ConfDirs())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert problem is not None
    assert "not in MLflow" in problem
    assert report.exit_code(judged, problem) == 3
    ended(outputs / SWEEP)
    assert synced(outputs) == 0
    reader = Reader.at(outputs)
    assert len(reader.cases(reader.find(SWEEP))) == 3
