from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sweep import case_file, report
from sweep import facts as facts_file
from sweep import folder as sweep_folder
from sweep.errors import MachineryError, RequestError
from sweep.facts import Facts
from sweep.judge import findings, known_failures
from sweep.machine import Machine
from sweep.plan import Planned, plan
from sweep.plan.earlier import Earlier
from sweep.report import Result
from sweep.session import GRACE_SECONDS, Session
from sweep.store import Reader
from tests.sweep.confs import use_folders
from tests.sweep.planning import COMMAND, composed


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


def test_outputs_may_be_a_link_but_not_into_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    with pytest.raises(RequestError, match=r"a link to .*/disk, which is not there: make that"):
        sweep_folder.claim(tmp_path / "link")
    (tmp_path / "disk").mkdir()
    assert sweep_folder.claim(tmp_path / "link").resolve().parent == tmp_path / "disk"


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
    use_folders(monkeypatch, known_failures, tmp_path)
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


def full_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """From now on no file whose name has `name` in it can be written."""
    write = Path.write_text

    def refused(path: Path, text: str, **how: str) -> int:
        if name in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(path, text, **how)

    monkeypatch.setattr(Path, "write_text", refused)


@pytest.mark.parametrize("name", ["facts.json", "findings.json"])
def test_a_disk_that_fills_up_ends_the_sweep_with_what_it_has(
    planned: list[Planned], monkeypatch: pytest.MonkeyPatch, make_facts: Callable[..., Facts],
    capsys: pytest.CaptureFixture[str], name: str,
) -> None:  # fmt: skip
    session, jobs = Session(planned, Machine(), live=False), (Job(), Job())

    def run() -> None:
        for index, job in enumerate(jobs):
            session.submitted(index, job)
        leave_facts(session, 0, make_facts)
        session.ended(0, "")
        full_disk(monkeypatch, name)
        session.ended(1, "")  # it left nothing, and salvage cannot write what it finds

    assert session.execute(run) == (3 if name == "facts.json" else 1)
    said = capsys.readouterr()
    assert f"{name}: No space left on device: free some space" in " ".join(said.out.split())
    assert "1 passed" in said.out
    assert (session.folder / "summary.md").is_file()


def test_reports_that_cannot_be_written_are_shown_and_recorded(
    planned: list[Planned], monkeypatch: pytest.MonkeyPatch, make_facts: Callable[..., Facts],
    capsys: pytest.CaptureFixture[str], outputs: Path,
) -> None:  # fmt: skip
    session = Session(planned[:1], Machine(), live=False)

    def run() -> None:
        session.submitted(0, Job())
        leave_facts(session, 0, make_facts)
        session.ended(0, "")
        full_disk(monkeypatch, "summary.md")

    assert session.execute(run) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "1 passed" in said
    assert "summary.md: No space left on device" in said
    assert Reader.at(outputs).find(session.folder.name).status == "FINISHED"


def test_a_fault_of_the_sweep_itself_costs_no_result(
    planned: list[Planned], make_facts: Callable[..., Facts], capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(planned[:1], Machine(), live=False)

    def run() -> None:
        session.submitted(0, Job())
        leave_facts(session, 0, make_facts)
        session.ended(0, "")
        raise KeyError("a slip")

    assert session.execute(run) == 3
    said = capsys.readouterr()
    assert "1 passed" in said.out
    assert "a fault of the sweep itself" in said.out
    assert "Traceback" in said.err


class Deaf(Job):
    """Has to be killed; says that it runs, with a signal for the sweep where there is one left."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.signals = list(signals)

    def is_over(self) -> bool:
        if self.signals:
            os.kill(os.getpid(), self.signals.pop())
        return False


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_sweep_in_order_and_a_second_one_at_once(
    planned: list[Planned], first: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(planned[:1], Machine(), live=False)
    began = time.monotonic()

    def run() -> None:
        session.submitted(0, Deaf(signal.SIGTERM))
        signal.signal(first, signal.getsignal(signal.SIGTERM))  # ignored where tests start with &
        os.kill(os.getpid(), first)
        raise AssertionError("nothing was interrupted")

    before = signal.getsignal(first)
    try:
        assert session.execute(run) == 130
    finally:
        signal.signal(first, before)
    assert time.monotonic() - began < GRACE_SECONDS / 2
    assert "1 of 1 cases have no result" in capsys.readouterr().err


def test_a_signal_while_reports_are_written_leaves_them_whole(
    planned: list[Planned], monkeypatch: pytest.MonkeyPatch, make_facts: Callable[..., Facts]
) -> None:
    session = Session(planned[:1], Machine(), live=False)
    draw_all = report.draw_all

    def interrupted(results: Sequence[Result]) -> str | None:
        os.kill(os.getpid(), signal.SIGTERM)
        return draw_all(results)

    def run() -> None:
        session.submitted(0, Job())
        leave_facts(session, 0, make_facts)
        session.ended(0, "")
        monkeypatch.setattr(report, "draw_all", interrupted)

    assert session.execute(run) == 0
    assert (session.folder / "junit.xml").is_file()


def test_facts_that_cannot_be_read_are_none_and_the_case_is_told_from_what_else_it_left(
    planned: list[Planned],
) -> None:
    session = Session(planned[:1], Machine(), live=False)
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


@pytest.mark.parametrize(
    ("name", "step"),
    [("sweep.json", "move the sweep's folder away"), ("facts.json", "move it away, and the case"),
     ("findings.json", "move the case's folder away"),
     ("case.json", "move the case's folder away")],
)  # fmt: skip
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe\0", b"null"])
def test_a_damaged_file_is_named_with_what_to_do(
    tmp_path: Path, name: str, step: str, content: bytes
) -> None:
    readers = {"sweep.json": sweep_folder.read_plan, "facts.json": facts_file.load,
               "findings.json": findings.load, "case.json": case_file.read}  # fmt: skip
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=f"{name}: .*{step}"):
        readers[name](tmp_path)
