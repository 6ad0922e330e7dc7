from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep import facts as facts_file
from sweep import folder as sweep_folder
from sweep.errors import MachineryError, RequestError
from sweep.facts import Facts
from sweep.judge import known_failures
from sweep.machine import Machine
from sweep.plan import Planned, plan
from sweep.plan.earlier import Earlier
from sweep.session import Session
from sweep.store import Reader
from tests.sweep.test_plan import COMMAND, composed


class Job:
    """Ends when it is asked to."""

    asked = False

    def ask_to_stop(self) -> None:
        self.asked = True

    def is_over(self) -> bool:
        return self.asked

    def clear(self) -> None: ...


@pytest.fixture
def planned(outputs: Path) -> list[Planned]:
    combinations = [[f"arch={arch}", "layout=single", f"outputs={outputs}", *COMMAND]
                    for arch in ("llama", "qwen3")]  # fmt: skip
    return plan(combinations, composed, Machine())


def leave_facts(session: Session, index: int, make_facts: Callable[..., Facts]) -> None:
    case = session.planned[index].case
    facts_file.save(make_facts().model_copy(update={"case": case}), session.folder / case.id)


def test_a_job_that_cannot_be_started_is_neither_red_nor_green(
    planned: list[Planned], capsys: pytest.CaptureFixture[str], make_facts: Callable[..., Facts]
) -> None:
    session = Session(planned, Machine(), live=False)

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
    session = Session(planned, Machine(), live=False)

    def run() -> None:
        session.submitted(0, Job())
        session.started(0)
        session.ended(0, "")  # it left nothing
        raise MachineryError("no space left")

    assert session.execute(run) == 1


def test_a_case_that_the_sweep_stops_itself_has_no_result(planned: list[Planned]) -> None:
    session, job = Session(planned, Machine(), live=False), Job()

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
    session = Session(planned[:1], Machine(), live=False)
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


def test_two_sweeps_of_one_second_have_two_folders(outputs: Path) -> None:
    folders = {sweep_folder.claim(outputs) for _ in range(3)}
    assert len(folders) == 3


def test_a_sweep_that_still_runs_is_not_gone_on_with(planned: list[Planned], outputs: Path) -> None:
    session = Session(planned, Machine(), live=False)
    with pytest.raises(RequestError, match="still runs"):
        Earlier.asked_for(outputs, "latest", None)
    plan_file = session.folder / "sweep.json"
    host = sweep_folder.this_driver().partition(":")[0]
    dead = {**json.loads(plan_file.read_text()), "driver": f"{host}:{2**22 + 1}:1.0"}
    plan_file.write_text(json.dumps(dead))
    earlier = Earlier.asked_for(outputs, session.folder.name, None)
    assert earlier is not None
    assert earlier.is_to_run(planned[0].case.id)


def test_only_failed_can_be_run_again(outputs: Path) -> None:
    with pytest.raises(RequestError, match="say rerun=failed"):
        Earlier.asked_for(outputs, None, "all")


def test_an_interrupted_case_has_no_result(
    planned: list[Planned], make_facts: Callable[..., Facts]
) -> None:
    session = Session(planned, Machine(), live=False)
    case = planned[0].case
    facts = make_facts().model_copy(update={"case": case, "interrupted": True})
    facts_file.save(facts, session.folder / case.id)
    earlier = Earlier(session.folder)
    assert earlier.is_to_run(case.id)
    assert not Earlier(session.folder, failed_only=True).is_to_run(case.id)


def test_the_latest_sweep_is_the_one_that_began_last(outputs: Path) -> None:
    for name, started in (("b", 1.0), ("a", 2.0), ("c", 1.5)):
        (outputs / name).mkdir()
        (outputs / name / "sweep.json").write_text(json.dumps({"started": started}))
    assert sweep_folder.find(outputs, "latest").name == "a"
    assert sweep_folder.find(outputs, "b").name == "b"
    with pytest.raises(RequestError, match="the last ones: b, c, a"):
        sweep_folder.find(outputs, "d")


def test_what_judging_needs_is_read_before_anything_is_made(
    planned: list[Planned], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / known_failures.FILE).write_text("case: all of them")
    monkeypatch.setattr(known_failures, "conf_dir", lambda: tmp_path)
    with pytest.raises(RequestError, match="say a list of entries"):
        Session(planned, Machine(), live=False)
    assert not list(Path(planned[0].settings.outputs).glob("20*"))


def test_a_wrong_store_is_told_before_anything_is_made(
    planned: list[Planned], outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(outputs.iterdir())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(outputs / "mlruns"))
    with pytest.raises(RequestError, match="MLflow no longer takes a folder"):
        Session(planned, Machine(), live=False)
    assert set(outputs.iterdir()) == before


def test_a_sweep_that_cannot_record_is_exit_3_and_has_its_results(
    planned: list[Planned], monkeypatch: pytest.MonkeyPatch, make_facts: Callable[..., Facts],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    session = Session(planned[:1], Machine(), live=False)

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
    session = Session(planned[:1], Machine(), live=False)
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
