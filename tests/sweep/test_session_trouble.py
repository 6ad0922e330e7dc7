"""A sweep that cannot begin, or is in trouble: signals, a full disk, a fault of its own."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sweep import report
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.judge import known_failures
from sweep.report import Result
from sweep.session.driver import GRACE_SECONDS, Session
from sweep.store import Reader
from tests.sweep.sessions import Job, leave_facts


def test_what_judging_needs_is_read_before_anything_is_made(
    planned: list[Planned], tmp_path: Path
) -> None:
    (tmp_path / known_failures.FILE).write_text("case: all of them")
    cases = [replace(case, config_dir=str(tmp_path)) for case in planned]
    with pytest.raises(RequestError, match="say a list of entries"):
        Session.begin(cases, Machine(), live=False)
    assert not list(Path(planned[0].settings.outputs).glob("20*"))


def test_a_wrong_store_is_told_before_anything_is_made(
    planned: list[Planned], outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(outputs.iterdir())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", str(outputs / "mlruns"))
    with pytest.raises(RequestError, match="MLflow no longer takes a folder"):
        Session.begin(planned, Machine(), live=False)
    assert set(outputs.iterdir()) == before


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
    session, jobs = Session.begin(planned, Machine(), live=False), (Job(), Job())

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
    session = Session.begin(planned[:1], Machine(), live=False)

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
    session = Session.begin(planned[:1], Machine(), live=False)

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
    session = Session.begin(planned[:1], Machine(), live=False)
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
    session = Session.begin(planned[:1], Machine(), live=False)
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
