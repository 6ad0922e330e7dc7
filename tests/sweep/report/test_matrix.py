from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep import report
from sweep.judge import Verdict
from sweep.report.html import page
from sweep.report.looks import LOOKS
from sweep.report.markdown import escaped
from sweep.report.matrix import matrix
from sweep.report.result import Result
from tests.sweep.report.conftest import FOLDER, SERVER, MakeResult

HOSTILE = "<script>alert(1)</script> & \"quoted\" 'so' {{ 7 * 7 }} | [a](javascript:b) `c`\n# d"
DROPPED = "step 1: loss is 5.2 in cp4_ep1, 5.1 in single"


class Page(HTMLParser):
    """What a browser would make of the page: tags with their attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def links(self) -> list[str]:
        return [attrs["href"] or "" for tag, attrs in self.tags if tag == "a"]


@pytest.fixture
def results(make_result: MakeResult) -> list[Result]:
    return [
        make_result("llama", "single", run_id="a1"),
        make_result("llama", "cp4_ep1", verdict=Verdict.FAILED, message=DROPPED, run_id="b2"),
        make_result("qwen3", "single", "resume", verdict=Verdict.UNAVAILABLE, message="no GPU"),
        make_result("qwen3", "cp4_ep1", verdict=Verdict.CRASHED, message="rank 1 failed first"),
    ]


def test_archs_go_down_and_the_features_of_a_layout_stand_together(results: list[Result]) -> None:
    whole = matrix(results)
    assert whole.archs == ["llama", "qwen3"]
    assert whole.columns == [("single", "base"), ("single", "resume"), ("cp4_ep1", "base")]
    assert whole.layouts == [("single", 2), ("cp4_ep1", 1)]
    assert [cell.word for cell in whole.at("llama", ("cp4_ep1", "base"))] == ["failed"]
    assert whole.at("llama", ("single", "resume")) == []


def test_cases_that_their_names_do_not_tell_apart_share_a_place(make_result: MakeResult) -> None:
    twice = [make_result(), make_result(verdict=Verdict.FAILED, message=DROPPED)]
    assert [cell.word for cell in matrix(twice).at("llama", ("cp4_ep1", "base"))] == [
        "passed",
        "failed",
    ]


def test_verdicts_are_counted_the_bad_ones_first(results: list[Result]) -> None:
    waiting = results[0].case.model_copy(update={"id": "x", "arch": "x"})
    words = matrix(results, [waiting]).words
    assert list(words) == ["crashed", "failed", "unavailable", "passed", "not run"]
    assert set(words.values()) == {1}


def test_a_cell_of_the_page_says_verdict_and_finding_and_leads_to_the_run(
    results: list[Result],
) -> None:
    html = page("20260101-000000", results, about={"torch": "2.13.0"})
    cell = html[html.index('data-case="llama-cp4_ep1-base"') :]
    cell = cell[: cell.index("</td>")]
    assert "failed" in cell
    assert LOOKS[Verdict.FAILED].symbol in cell
    assert "parity: step 1: loss is 5.2" in cell
    assert f'href="{SERVER}/#/experiments/1/runs/b2"' in cell
    assert "torch 2.13.0" in html
    compared = f"{SERVER}/#/metric?runs=%5B%22b2%22,%22a1%22%5D"
    assert any(link.startswith(compared) for link in Page(html).links())


def test_the_summary_leads_from_a_failure_to_its_curves(results: list[Result]) -> None:
    compared = f"[Its curves in MLflow]({SERVER}/#/metric?runs=%5B%22b2%22,%22a1%22%5D"
    assert compared in report.details("x", results)
    assert compared in report.sweep_note(results)


def test_a_case_in_no_server_leads_to_its_folder(results: list[Result]) -> None:
    assert "./qwen3-cp4_ep1-base/" in Page(page("x", results)).links()
    assert "](./qwen3-cp4_ep1-base/)" in report.details("x", results)


def test_a_finding_leads_to_its_details_on_the_page(results: list[Result]) -> None:
    found = Page(page("x", results))
    wanted = {link[1:] for link in found.links() if link.startswith("#")}
    assert len(wanted) == 3
    assert wanted <= {attrs.get("id") for _, attrs in found.tags}


def test_a_planned_case_without_a_result_is_shown_as_not_run(results: list[Result]) -> None:
    waiting = results[0].case.model_copy(update={"id": "x", "arch": "gpt_oss"})
    assert "1 not run" in Page(page("x", results, [waiting])).text
    assert re.search(r"\| gpt_oss \| · not run \|", report.details("x", results, [waiting]))


def test_the_page_needs_nothing_but_itself(results: list[Result]) -> None:
    found = Page(page("x", results))
    assert {tag for tag, _ in found.tags}.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert not [name for _, attrs in found.tags for name in attrs if name.startswith("on")]
    html = page("x", results)
    assert "url(" not in html
    assert "@import" not in html
    assert "prefers-color-scheme: dark" in html


def test_hostile_names_and_messages_are_text_on_the_page(make_result: MakeResult) -> None:
    one = make_result(HOSTILE, HOSTILE, HOSTILE, verdict=Verdict.FAILED, message=HOSTILE)
    found = Page(page(HOSTILE, [one], about={"torch": HOSTILE}))
    harmless = Page(page("x", [make_result(verdict=Verdict.FAILED, message="x")]))
    assert [tag for tag, _ in found.tags] == [tag for tag, _ in harmless.tags]
    assert [sorted(attrs) for _, attrs in found.tags] == [
        sorted(attrs) for _, attrs in harmless.tags
    ]
    assert "49" not in found.text
    assert not any(link.startswith("javascript") for link in found.links())


def test_hostile_names_and_messages_stay_in_their_place_in_markdown(
    make_result: MakeResult,
) -> None:
    one = make_result(HOSTILE, HOSTILE, HOSTILE, verdict=Verdict.FAILED, message=HOSTILE)
    rows = [line for line in report.details("x", [one]).splitlines() if line.startswith("| ")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows[:3]} == {3}
    assert r"\<script\>" in report.failure_note(one)


@given(st.text())
def test_whatever_markdown_shows_is_one_line_and_opens_nothing(text: str) -> None:
    shown = escaped(text)
    assert "\n" not in shown
    assert not re.search(r"(?<!\\)(\\\\)*[<|`\[\]*]", shown)


@pytest.mark.parametrize("limit", [300, 700, 2000, 7900])
def test_the_note_of_a_sweep_keeps_within_its_limit(make_result: MakeResult, limit: int) -> None:
    failed = {"verdict": Verdict.FAILED, "message": "no " * 300}
    many = [make_result(f"arch{n}", run_id="a" * 32, **failed) for n in range(30)]
    note = report.sweep_note(many, limit=limit)
    assert len(note) <= limit
    assert "30 failed" in note
    assert note.endswith("details.md]\n")


def test_the_note_of_a_nightly_has_every_verdict_with_a_link_inside_the_ui(
    make_result: MakeResult,
) -> None:
    many = [make_result(f"arch{n}", run_id=f"{n:032x}") for n in range(33)]
    note = report.sweep_note(many)
    assert note.count("✓ passed](#/experiments/1/runs/") == 33


@pytest.mark.parametrize("verdict", list(Verdict))
@pytest.mark.parametrize(("text", "theme"), [("#16191d", "light"), ("#f1f3f5", "dark")])
def test_text_stands_out_from_every_verdicts_colour(
    verdict: Verdict, text: str, theme: str
) -> None:
    """4.5 is what WCAG 2 asks for."""
    lighter, darker = sorted(map(luminance, (getattr(LOOKS[verdict], theme), text)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= 4.5


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_sweeps_folder_holds_page_summary_and_junit(
    results: list[Result], tmp_path: Path
) -> None:
    report.write(tmp_path / FOLDER.name, results)
    assert "Sweep 20260101-000000" in (tmp_path / FOLDER.name / "matrix.html").read_text()
    assert (tmp_path / FOLDER.name / "summary.md").is_file()
    assert ET.parse(tmp_path / FOLDER.name / "junit.xml").getroot().get("tests") == "4"


def test_two_cases_in_one_place_are_told_apart(make_result: MakeResult) -> None:
    def named(suffix: str) -> Result:
        one = make_result("llama", "single")
        case = one.case.model_copy(update={"id": f"{one.case.id}{suffix}"})
        return replace(one, judgement=one.judgement.model_copy(update={"case": case}))

    two = [named("-seed_0"), named("-seed_1"), make_result("qwen3", "single")]
    text = Page(page("s", two)).text
    assert "seed_0" in text
    assert "seed_1" in text
    assert "as it is" not in text, "of a case that is alone in its place nothing is said"
    lines = report.details("s", two).splitlines()
    (row,) = (line for line in lines if line.startswith("| llama |"))
    assert re.search(r"seed_0: .*passed.*; seed_1: .*passed", row.replace("\\", ""))
    with_fault = Page(page("s", [named(""), named("-fault_dead_model")])).text
    assert "as it is" in with_fault
    assert "fault_dead_model" in with_fault
