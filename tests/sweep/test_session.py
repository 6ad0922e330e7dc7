"""From a sweep's jobs to its exit code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sweep import facts as facts_file
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import MachineryError
from sweep.facts import Facts
from sweep.session.driver import Session
from sweep.store import Reader
from tests.sweep.sessions import Job, leave_facts


def test_a_job_that_cannot_be_started_is_neither_red_nor_green(
    planned: list[Planned], capsys: pytest.CaptureFixture[str], make_facts: Callable[..., Facts]
) -> None:
    session = Session.begin(planned, Machine(), live=False)

    def run() -> None:
        session.submitted(0, Job())
        session.started(0)
        leave_facts(session, 0, make_facts)
        session.ended(0, "")
        raise MachineryError("a job could not be started: no space left")

    assert session.execute(run) == 3
    said = capsys.readouterr()
    assert "no space left" in said.out
    assert "1 of 2 cases have no result" in said.err
    junit = (session.folder / "junit.xml").read_text()
    assert 'failures="0"' in junit


def test_a_failed_case_is_red_even_if_the_machinery_fails_as_well(planned: list[Planned]) -> None:
    session = Session.begin(planned, Machine(), live=False)

    def run() -> None:
        session.submitted(0, Job())
        session.started(0)
        session.ended(0, "")  # it left nothing
        raise MachineryError("no space left")

    assert session.execute(run) == 1


def test_a_case_that_the_sweep_stops_itself_has_no_result(planned: list[Planned]) -> None:
    session, job = Session.begin(planned, Machine(), live=False), Job()

    def run() -> None:
        session.submitted(0, job)
        session.started(0)
        raise MachineryError("no space left")

    assert session.execute(run) == 3
    assert job.asked
    assert not list(session.folder.glob("*/facts.json"))


def test_a_case_that_somebody_else_stops_has_failed(
    planned: list[Planned], make_facts: Callable[..., Facts]
) -> None:
    session = Session.begin(planned[:1], Machine(), live=False)
    case = session.planned[0].case
    stopped = {"case": case, "interrupted": True, "error": "interrupted: SIGTERM"}

    def run() -> None:
        session.submitted(0, Job())
        session.started(0)
        facts_file.save(make_facts().model_copy(update=stopped), session.folder / case.id)
        session.ended(0, "")

    assert session.execute(run) == 1
    facts = facts_file.load(session.folder / case.id)
    assert facts is not None
    assert not facts.interrupted
    assert facts.error is not None
    assert "not by the sweep (interrupted: SIGTERM)" in facts.error


def test_a_sweep_that_cannot_record_is_exit_3_and_has_its_results(
    planned: list[Planned], monkeypatch: pytest.MonkeyPatch, make_facts: Callable[..., Facts],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    session = Session.begin(planned[:1], Machine(), live=False)

    def run() -> None:
        session.submitted(0, Job())
        session.started(0)
        leave_facts(session, 0, make_facts)
        session.ended(0, "")

    assert session.execute(run) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "1 passed" in said
    assert "not in MLflow (http://127.0.0.1:9)" in said
    assert "python -m sweep.sync" in said


def test_a_sweep_stopped_in_its_only_case_is_in_mlflow_as_killed(
    planned: list[Planned], outputs: Path, make_facts: Callable[..., Facts]
) -> None:
    session = Session.begin(planned[:1], Machine(), live=False)
    case = planned[0].case
    stopped = make_facts().model_copy(update={"case": case, "interrupted": True})

    def run() -> None:
        session.submitted(0, Job())
        session.started(0)
        facts_file.save(stopped, session.folder / case.id)
        raise KeyboardInterrupt

    assert session.execute(run) == 130
    reader = Reader.at(outputs)
    sweep = reader.find(session.folder.name)
    (recorded,) = reader.cases(sweep)
    assert (sweep.status, recorded.status) == ("KILLED", "KILLED")


def test_facts_that_cannot_be_read_are_none_and_the_case_is_told_from_what_else_it_left(
    planned: list[Planned],
) -> None:
    session = Session.begin(planned[:1], Machine(), live=False)
    path = session.folder / planned[0].case.id / "facts.json"

    def run() -> None:
        session.submitted(0, Job())
        path.write_bytes(b'{"sweep_id": "\xff')
        assert not session.has_facts(0)
        session.ended(0, "")

    assert session.execute(run) == 1
    facts = facts_file.load(path.parent)
    assert facts is not None
    assert "the job died without leaving a result" in str(facts.error)
