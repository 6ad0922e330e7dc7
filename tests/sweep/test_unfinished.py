"""A sweep that was cut off: red in CI, and resumable wherever its process ran."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from sweep import processes
from sweep.case import folder as sweep_folder
from sweep.case.identity import identity_of
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import MachineryError, RequestError
from sweep.facts import Facts
from sweep.judge import unavailable
from sweep.plan.earlier import Earlier
from sweep.plan.suite import OF_THE_SWEEP
from sweep.report import Result, junit
from sweep.report.detection import Detection
from sweep.session.driver import Session
from sweep.store.ending import end_dead_runs
from tests.sweep.conftest import CASE
from tests.sweep.recording import statuses
from tests.sweep.sessions import Job, leave_facts

Make = Callable[..., Facts]
A_DAY_AGO = f"{time.time() - 90_000:.1f}"
HERE = socket.gethostname()


def test_junit_has_every_planned_case_and_is_red_where_one_did_not_run(
    planned: list[Planned], make_facts: Make
) -> None:
    session = Session.begin(planned, Machine(), live=False)

    def run() -> None:
        session.submitted(0, Job())
        leave_facts(session, 0, make_facts)
        session.ended(0, "")
        raise MachineryError("a job could not be started")

    assert session.execute(run) == 3
    suite = ET.parse(session.folder / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "0", "1")
    tests = {test.get("name"): test.find("error") for test in suite}
    assert tests["test_command[llama-single-base]"] is None
    error = tests["test_command[qwen3-single-base]"]
    assert error is not None
    assert "without a result" in str(error.get("message"))


def test_a_case_whose_file_is_damaged_is_in_junit_by_its_id(planned: list[Planned]) -> None:
    session = Session.begin(planned, Machine(), live=False)

    def run() -> None:
        session.submitted(0, Job())
        session.ended(0, "")
        (session.folder / planned[1].case.id / "case.json").write_text("{")

    session.execute(run)
    suite = ET.parse(session.folder / "junit.xml").getroot()
    assert "test_unknown[qwen3-single-base]" in {test.get("name") for test in suite}


def test_a_test_is_named_after_the_trainer() -> None:
    case = CASE.model_copy(update={"trainer": "prime-rl"})
    text = junit("s", [Result(unavailable(case, "no GPU"), Path("x"), "python -m sweep")])
    assert f'name="test_prime_rl[{CASE.id}]"' in text


@pytest.fixture
def driven_by(planned: list[Planned]) -> Callable[[str], Path]:
    session = Session.begin(planned, Machine(), live=False)

    def by(driver: str) -> Path:
        path = session.folder / "sweep.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "driver": driver}))
        return session.folder

    return by


def test_a_sweep_of_a_host_that_is_gone_is_resumed_if_told_so_or_after_a_day(
    driven_by: Callable[[str], Path], outputs: Path
) -> None:
    driven_by(f"otherhost:123:456:{time.time():.1f}")
    with pytest.raises(RequestError, match="add host_gone=true"):
        Earlier.asked_for(outputs, "latest", None)
    assert Earlier.asked_for(outputs, "latest", None, host_gone=True) is not None
    driven_by(f"otherhost:123:456:{A_DAY_AGO}")
    assert Earlier.asked_for(outputs, "latest", None) is not None


def test_a_sweep_that_runs_here_is_never_taken_for_gone(
    driven_by: Callable[[str], Path], outputs: Path
) -> None:
    pid, ticks, _ = processes.this_process().split(":")
    folder = driven_by(f"{HERE}:{pid}:{ticks}:{A_DAY_AGO}")  # it takes longer than a day
    assert sweep_folder.is_running(folder)
    with pytest.raises(RequestError, match=r"still runs .*; end it first"):
        Earlier.asked_for(outputs, "latest", None, host_gone=True)


def test_a_run_of_a_sweep_that_takes_longer_than_a_day_is_not_ended(outputs: Path) -> None:
    from sweep.store import Location

    pid, ticks, _ = processes.this_process().split(":")
    client = Location.at(outputs).client
    experiment = client.create_experiment("nightly")
    for driver in (f"{HERE}:{pid}:{ticks}:{A_DAY_AGO}", f"otherhost:1:1:{A_DAY_AGO}"):
        client.create_run(experiment, 1, {"kind": "sweep", "driver": driver})
    end_dead_runs(client, experiment)
    assert statuses(outputs) == [("sweep", "KILLED"), ("sweep", "RUNNING")]


def test_a_suite_of_faults_of_which_none_could_be_planted_is_not_green(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faulty = CASE.model_copy(update={"fault": "loud", "id": "a-single-none-fault_loud"})
    results = [Result(unavailable(one, "needs a GPU"), tmp_path, "") for one in (CASE, faulty)]
    detection = Detection({"parity": ["loud"]})
    assert detection.conclude(tmp_path, results) == 2
    assert "no fault could be planted here" in capsys.readouterr().err
    assert detection.conclude(tmp_path, results[:1]) == 0, "nobody asked for a fault"


def test_what_is_said_of_a_sweep_as_a_whole_is_no_part_of_a_case(planned: list[Planned]) -> None:
    settings = planned[0].settings
    whole: dict[str, Any] = {"suite": "x", "cases": ["a"], "shard": "1/2", "resume_sweep": "y",
             "rerun": "failed", "host_gone": True, "references": True, "plan": True,
             "detach": True, "locate": True, "notify": "x", "notify_form": "y",
             "notify_always": True}  # fmt: skip
    assert set(whole) == set(OF_THE_SWEEP)
    assert identity_of(replace(settings, **whole)) == identity_of(settings)
