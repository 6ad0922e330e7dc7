"""Every case over the nights: since when, how flaky, how near its thresholds, what moved."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sweep.facts import Facts
from sweep.history import __main__ as command
from sweep.history import html, text
from sweep.history.case import CaseHistory, histories
from sweep.history.commits import Commits
from sweep.history.data import data
from sweep.history.trend import Trend
from sweep.history.view import View, headline
from sweep.store import Location, Reader, nights, past
from sweep.store.nights import CaseNight, Night
from tests.sweep.conftest import CASE
from tests.sweep.recording import named, night

Make = Callable[..., Facts]
DAY = 86_400.0
START = 1_796_083_200.0  # 2026-12-01
ABOUT = {"git_sha": "a" * 40, "torch": "2.13.0", "thresholds": "t1", "host": "h1"}


def made(
    verdicts: Sequence[str], about: Sequence[dict[str, str]] | None = None, **fields: Sequence[Any]
) -> list[Night]:
    """A night for each verdict; `-`: planned and without a result."""
    found = []
    for number, verdict in enumerate(verdicts):
        values = {name: given[number] for name, given in fields.items()}
        known = ABOUT | (about[number] if about else {})
        case = CaseNight("c", verdict, about=known, settings="s", **values)
        has = verdict != "-"
        found.append(
            Night(
                f"n{number}",
                START + number * DAY,
                "nightly",
                {"c": case} if has else {},
                [] if has else ["c"],
            )
        )
    return found


def history_of(*args: Any, **fields: Any) -> CaseHistory:
    (case,) = histories(made(*args, **fields))
    return case


def shown(view: View, width: int = 200) -> str:
    out = io.StringIO()
    text.show(view, Console(file=out, width=width))
    return out.getvalue()


def test_since_when_a_case_fails_is_its_last_run_of_nights() -> None:
    case = history_of(["failed", "passed", "passed", "crashed", "-", "failed", "failed"])
    assert [place.night.sweep_id for place in case.streak] == ["n5", "n6"]
    assert [place.night.sweep_id for place in case.failing] == ["n3", "n5", "n6"]
    assert case.last_good is not None
    assert case.last_good.night.sweep_id == "n2"
    assert case.pass_rate == pytest.approx(2 / 6)
    assert len(case.changes) == 3


@pytest.mark.parametrize(
    "bad", ["failed", "crashed", "timed_out", "inconclusive", "flaky", "fixed"]
)
def test_a_night_that_is_not_good_never_counts_as_passed(bad: str) -> None:
    case = history_of(["passed", bad])
    assert case.pass_rate == 0.5
    assert len(case.failing) == 1
    assert case.last_good is not None
    assert case.last_good.night.sweep_id == "n0"


def test_a_case_that_cannot_run_neither_passes_nor_fails() -> None:
    case = history_of(["unavailable", "unavailable"])
    assert (case.pass_rate, case.failing, case.flakiness) == (None, [], (0, 0))


def test_flaky_is_what_changes_at_the_same_commit_and_versions() -> None:
    assert history_of(["passed", "failed", "passed"]).flakiness == (2, 2)
    moved = [{}, {"git_sha": "b" * 40}, {"git_sha": "c" * 40}]
    assert history_of(["passed", "failed", "passed"], moved).flakiness == (0, 0)
    back = [{}, {"torch": "2.14.0"}, {}]  # went there and came back
    assert history_of(["passed", "failed", "passed"], back).flakiness == (0, 1)
    hosts = [{}, {"host": "h2"}, {}]
    assert history_of(["passed", "failed", "passed"], hosts).flakiness == (2, 2)


def test_a_night_that_passed_at_the_second_try_is_flaky_by_itself() -> None:
    assert history_of(["flaky"]).flakiness == (1, 1)
    assert history_of(["flaky", "flaky"]).flakiness == (2, 2)


@given(st.lists(st.sampled_from(["passed", "failed", "flaky", "unavailable", "-"]), max_size=30))
def test_flakiness_never_exceeds_what_could_change(verdicts: list[str]) -> None:
    for case in histories(made(verdicts)):
        changed, pairs = case.flakiness
        assert 0 <= changed <= pairs <= len(verdicts)
        assert changed or not verdicts.count("flaky")


def test_what_moved_when_a_verdict_changed_is_named() -> None:
    about = [{}, {"git_sha": "b" * 40, "torch": "2.14.0", "host": "h2", "thresholds": "t2"}]
    case = history_of(["passed", "failed"], about, checkpoint=["m1", "m2"])
    (change,) = case.changes
    assert set(change.moved) == {
        "torch 2.13.0 > 2.14.0",
        "git_sha aaaaaaaaa > bbbbbbbbb",
        "thresholds t1 > t2",
        "host h1 > h2",
        "model m1 > m2",
    }
    assert change.commits == ("a" * 40, "b" * 40)
    same = history_of(["passed", "failed"])
    view = View.of(made(["passed", "failed"]))
    assert same.changes[0].commits is None
    assert view.said(same.changes[0]) == ["nothing that is recorded moved"]


def test_commits_between_two_nights_have_their_authors_and_subjects(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=Ann", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *who, *words], capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    shas = []
    for subject in ["first", "second <b>", "third"]:
        git("commit", "-q", "--allow-empty", "-m", subject)
        shas.append(git("rev-parse", "HEAD"))
    lines = Commits(tmp_path).between(shas[0], shas[2])
    assert [line.partition(" ")[2] for line in lines] == ["Ann: third", "Ann: second <b>"]
    assert Commits(tmp_path).between("f" * 40, shas[2]) == []
    assert Commits(tmp_path / "none").between(shas[0], shas[2]) == []
    about = [{"git_sha": shas[0]}, {"git_sha": shas[2]}]
    view = View.of(made(["passed", "failed"], about), Commits(tmp_path))
    assert "Ann: second <b>" in shown(view)
    assert "Ann: second &lt;b&gt;" in html.page(view)
    assert data(view)["cases"][0]["changes"][0]["commits"] == lines


def test_a_margin_that_rises_is_warned_of_before_it_fails() -> None:
    rising = Trend("parity", [0.1 * n for n in range(1, 9)])
    assert rising.slope == pytest.approx(0.1)
    assert (
        "parity is at 0.8 of its threshold and rising: at this pace it fails in" in rising.warning
    )
    assert Trend("parity", [0.3, 0.1, 0.4, 0.2, 0.3, 0.1]).warning == ""  # noise
    assert Trend("parity", [0.001 * n for n in range(1, 9)]).warning == ""  # years away
    assert Trend("parity", [0.95]).warning == "parity is at 0.95 of its threshold"
    assert Trend("parity", [0.1 * n for n in range(1, 13)]).warning == "", "it fails already"
    assert Trend("parity", [0.2, 0.7, 3.0]).closest == 0.7


def test_a_trend_is_taken_under_one_set_of_thresholds() -> None:
    margins = [{"parity": value} for value in (0.9, 0.9, 0.1, 0.1)]
    about = [{}, {}, {"thresholds": "t2"}, {"thresholds": "t2"}]
    (trend,) = history_of(["passed"] * 4, about, margins=margins).trends
    assert list(trend.values) == [0.1, 0.1]


def test_a_case_that_takes_longer_than_usual_is_warned_of() -> None:
    slow = history_of(["passed"] * 7, seconds=[10.0] * 6 + [20.0])
    assert slow.warnings == ["took 20 s, 2.0 times the usual"]
    assert history_of(["passed"] * 7, seconds=[10.0] * 6 + [12.0]).warnings == []


def test_shards_of_a_night_are_one_column() -> None:
    def shard(name: str, started: float, *cases: str) -> Night:
        return Night(name, started, "nightly", {case: CaseNight(case, "passed") for case in cases})

    found = [
        shard("a1", START, "a"),
        shard("a2", START + 60, "b"),
        shard("b1", START + DAY, "a"),
        shard("b2", START + DAY + 60, "b"),
        shard("b3", START + DAY + 7200, "a"),
    ]
    groups = [[sweep.sweep_id for sweep in group] for group in past.grouped(found)]
    assert groups == [["a1", "a2"], ["b1", "b2"], ["b3"]]
    view = View.of(found)
    lines = {case.case_id: view.line(case, 9) for case in view.cases}
    assert lines == {"a": "✓✓✓", "b": "✓✓ "}


def test_the_terminal_says_in_a_line_how_a_case_stands() -> None:
    view = View.of(
        made(
            ["passed", "passed", "failed", "-", "failed"],
            failing=[(), (), ("parity",), (), ("parity",)],
        )
    )
    said = shown(view)
    assert said.startswith("nightly: 5 nights, 2026-12-01 to 2026-12-05")
    (row,) = (line for line in said.splitlines() if line.startswith("c "))
    assert row.split() == ["c", "12-03", "(2)", "50%", "1", "of", "3", "-", "✓✓✗·✗"]
    assert "c: failed since 2026-12-03 (2 nights; passed before): parity" in said
    assert "nothing that is recorded moved" in said


@pytest.mark.parametrize("width", [40, 80])
def test_on_a_narrow_terminal_the_newest_nights_are_shown(width: int) -> None:
    view = View.of(made(["passed"] * 99 + ["failed"]))
    rows = [line for line in shown(view, width).splitlines() if "✓✗" in line]
    assert rows[0].rstrip().endswith("✓✗")
    assert all(len(row) <= width for row in rows) or width == 40


def test_the_page_escapes_what_a_store_says() -> None:
    hostile = "<script>alert(1)</script>"
    case = CaseNight(hostile, "failed", (hostile,), {hostile: 0.5}, 1.0, {"torch": hostile})
    before = CaseNight(hostile, "passed", about={"torch": "1"})
    found = [
        Night("n0", START, hostile, {hostile: before}),
        Night(hostile, START + DAY, hostile, {hostile: case}),
    ]
    page = html.page(View.of(found))
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def recorded(outputs: Path, make_facts: Make) -> None:
    for day in range(1, 4):
        code = 1 if day == 3 else 0
        other = named(make_facts(), "other")
        night(outputs, day, make_facts(exit_code=code), other)


def run(outputs: Path, *words: str) -> int:
    return command.main([f"outputs={outputs}", *words])


def test_the_command_tells_the_nights_that_are_recorded(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(outputs, make_facts)
    assert run(outputs, "suite=nightly") == 0
    said = capsys.readouterr().out
    assert "✓✓!" in said
    assert f"{CASE.id}: crashed since 1970-01-04 (1 night; passed before): exit" in said
    page = outputs / "20260103-000000" / "history.html"
    assert f"page {page}" in said
    assert f'id="{CASE.id}"' in page.read_text()
    assert run(outputs, "json=-", "last=2", "case=llama*") == 0
    (case,) = json.loads(capsys.readouterr().out)["cases"]
    assert (case["case_id"], case["verdicts"]) == (CASE.id, ["passed", "crashed"])
    assert case["failing_since"] == "20260103-000000"


def test_a_summary_is_made_again_from_the_runs_of_the_cases(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(outputs, make_facts)
    client = Location.at(outputs).client
    runs = client.search_runs(["1"], "tags.kind = 'sweep'")
    before = {run.info.run_id: run.data.tags for run in runs}
    for run_id, tags in before.items():
        for key in tags:
            if key.startswith(nights.PREFIX):
                client.delete_tag(run_id, key)
    assert run(outputs) == 0
    assert "✓✓!" in capsys.readouterr().out
    for run_id, tags in before.items():
        assert client.get_run(run_id).data.tags == tags


def test_rebuilding_replaces_what_is_wrong(outputs: Path, make_facts: Make) -> None:
    recorded(outputs, make_facts)
    reader = Reader.at(outputs)
    sweep = reader.find("latest")
    wrong = nights.packed([CaseNight(CASE.id, "passed")], [])
    for key, value in wrong.items():
        reader.location.client.set_tag(sweep.run_id, key, value)
    assert run(outputs, "rebuild=true") == 0
    (found,) = past.sweeps(reader, reader.find("latest"), 1)
    assert found.cases[CASE.id].verdict == "crashed"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["last=0"], "last=0: say a number of nights"),
        (["last=x"], "last=x: say a number of nights"),
        (["rebuild=maybe"], "rebuild=maybe: say true or false"),
        (["repo=/none"], "repo=/none: no such folder"),
        (["case=none"], "case=none: no such case in nightly"),
        (["suite=none"], "no experiment none"),
    ],
)
def test_a_wrong_request_is_answered_in_one_line(
    outputs: Path, make_facts: Make, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    night(outputs, 1, make_facts())
    assert run(outputs, *words) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error


def test_a_store_that_is_silent_is_told(
    outputs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    assert run(outputs) == 3
    assert "127.0.0.1:9" in capsys.readouterr().err


def test_headline_of_a_case_that_never_ran() -> None:
    view = View.of(made(["-"]))
    assert headline(view, view.cases[0]) == "c: never ran"
