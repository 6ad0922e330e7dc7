from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from sweep import clock, report
from sweep.checks import Context
from sweep.facts import Facts
from sweep.judge import Verdict, judge, unavailable
from sweep.report import Result
from sweep.session.progress import Progress
from tests.sweep.conftest import CASE

Make = Callable[..., Facts]
FOLDER = Path("outputs/20260101-000000")


def result(facts: Facts) -> Result:
    judgement = judge(facts, Context())
    return Result(judgement, FOLDER / CASE.id, "python -m sweep arch=llama", facts)


def skipped() -> Result:
    return Result(unavailable(CASE, "needs a GPU"), FOLDER / CASE.id, "python -m sweep")


@pytest.fixture
def crash(make_facts: Make) -> Result:
    tails = {"log_tail": "torchrun says\x1b[31m no", "rank_tail": "rank two says why"}
    return result(make_facts(exit_code=1, failed_rank=2, failure="Error: <why> & so", **tails))


def test_exit_codes(make_facts: Make, crash: Result) -> None:
    good = result(make_facts())
    assert report.exit_code([good, skipped()], None) == 0
    assert report.exit_code([good, crash], None) == 1
    assert report.exit_code([skipped()], None) == 2
    assert report.exit_code([good], "no store") == 3
    assert report.exit_code([good, crash], "no store") == 1


@pytest.mark.parametrize("verdict", list(Verdict))
def test_only_these_verdicts_are_good(verdict: Verdict) -> None:
    assert verdict.good == (verdict.value in {"passed", "known", "unavailable"})


def test_the_summary_says_what_failed_where_and_how_to_run_it_again(crash: Result) -> None:
    text = report.details("20260101-000000", [crash, skipped()])
    assert "1 crashed, 1 unavailable" in text
    assert f"| {CASE.id} | crashed | 2.9000 > 2.5000 | 10 s |" in text
    assert r"rank 2 failed first: Error: \<why\> \& so" in text
    assert f"Look in `{FOLDER}/{CASE.id}/launches/1_train`" in text
    assert "    python -m sweep arch=llama" in text
    assert "    rank two says why" in text
    assert "plan: needs a GPU" in text


def test_junit_counts_failures_and_skips_and_is_xml_whatever_a_log_holds(crash: Result) -> None:
    suite = ET.fromstring(report.junit("20260101-000000", [crash, skipped()]))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("2", "1", "1")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "crashed"
    assert "rank two says why" in (failure.text or "")


def test_the_terminal_shows_the_tails_and_what_the_store_says(
    crash: Result, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    report.show(FOLDER, [crash], "the store is down")
    text = capsys.readouterr().out
    assert CASE.id in text
    assert "launches/1_train" in text
    assert "rank two says why" in text
    assert "the store is down" in text


def test_a_long_log_is_cut_in_a_note_but_not_on_disk(make_facts: Make) -> None:
    long = result(make_facts(exit_code=1, log_tail="x" * 100_000))
    assert len(report.failure_note(long)) < 6100
    assert "x" * 100_000 in report.failure_note(long, limit=1_000_000)


def test_progress_is_a_line_a_change_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with Progress(["a", "b"], enabled=True, console=Console(file=out, width=80)) as progress:
        progress.started("a")
        for step in (0, 1, 1, 2):
            progress.step("a", step, 5)
        progress.ended("a", "passed")
        progress.refresh()
    said = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert said == ["a running", "a running, step 1 of 5", "a running, step 2 of 5", "a passed"]


def test_progress_on_a_terminal_shows_waiting_running_and_done() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True)
    with Progress(["a", "b", "c"], enabled=True, console=console) as progress:
        progress.started("a")
        progress.ended("a", "failed")
        progress.started("b")
        progress.step("b", 3, 5)
        progress.refresh()
    text = out.getvalue()
    assert "running, step 3 of 5" in text
    assert "1 done, 1 running, 1 waiting" in text


def test_a_format_is_added_in_one_place(
    crash: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(
        report.FORMATS, "ids.txt", lambda of: "\n".join(one.case.id for one in of.results)
    )
    report.write(tmp_path, [crash])
    assert (tmp_path / "ids.txt").read_text() == crash.case.id
    assert {"summary.md", "matrix.html", "junit.xml"} < {path.name for path in tmp_path.iterdir()}


def test_a_long_id_leaves_the_columns_of_the_live_table() -> None:
    out, long = io.StringIO(), "qwen3_moe-fsdp2_ep2-optim_offload-" + "seed_1-" * 10 + "end"
    console = Console(file=out, width=80, force_terminal=True)
    with Progress([long, "b"], enabled=True, console=console) as progress:
        progress.started(long)
        progress.step(long, 3, 5)
        progress.refresh()
    text = out.getvalue()
    assert "running, step 3 of 5 (" in text
    assert "qwen3_moe-fsdp2_ep2" in text
    assert "-end" in text


def test_progress_says_how_long_the_rest_takes_as_this_machine_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, now = io.StringIO(), [1000.0]
    monkeypatch.setattr(clock, "now", lambda: now[0])
    expected = {"a": 50.0, "b": 50.0, "c": 100.0, "d": 100.0}
    console = Console(file=out, width=80)
    with Progress([*expected], enabled=True, console=console, estimates=expected) as progress:
        progress.started("a")
        progress.started("b")
        now[0] = 1100.0
        progress.ended("a", "passed")  # twice its estimate; b has had its time, c and d take 400
        progress.ended("b", "passed")
        progress.started("c")
        now[0] = 1200.0
        progress.ended("c", "passed")  # as estimated: 300 s for 200, d takes 150, at two at a time
    said = [line.split(" ", 1)[1] for line in out.getvalue().splitlines()]
    assert said == [
        "a running",
        "b running",
        "a passed, about 3 min left",
        "b passed, about 3 min left",
        "c running",
        "c passed, about 75 s left",
    ]
