"""What the pages say of the nights before, and the small pictures on them."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.facts import Metrics, Step
from sweep.judge import Verdict
from sweep.report.html import page
from sweep.report.past import Failing, Past
from sweep.report.pictures import pictures
from sweep.report.svg import curves
from tests.sweep.report.conftest import MakeResult

CASE_ID = "llama-cp4_ep1-base"
PAST = Past(
    {CASE_ID: Failing("2026-11-27", 4, moved=["torch 2.12.0 > 2.13.0"])},
    {CASE_ID: "failed"},
    "history.html",
)


def test_a_cell_says_since_when_it_fails_and_leads_to_its_nights(make_result: MakeResult) -> None:
    bad = make_result(verdict=Verdict.FAILED, message="step 3: loss is off")
    html = page("s", [bad, make_result("qwen3")], past=PAST)
    cell = html[html.index(f'data-case="{CASE_ID}"') :]
    cell = cell[: cell.index("</td>")]
    assert f'href="history.html#{CASE_ID}"' in cell
    assert "since 2026-11-27, 4 nights" in cell
    assert 'href="history.html#qwen3-cp4_ep1-base"' in html
    assert "moved then: torch 2.12.0 &gt; 2.13.0" in html


def test_without_nights_there_is_no_link_to_them(make_result: MakeResult) -> None:
    assert "history.html" not in page("s", [make_result()])


def test_a_failed_case_is_drawn_over_its_reference(make_result: MakeResult) -> None:
    steps = [Step(step=n, loss=3 - n / 10 + (n > 2), grad_norm=1.0, global_batch_digest=f"b{n}")
             for n in range(1, 6)]  # fmt: skip
    plain = [step.model_copy(update={"loss": 3 - step.step / 10}) for step in steps]
    bad = make_result(verdict=Verdict.FAILED, message="off", metrics=Metrics(steps=steps))
    reference = make_result(layout="single", metrics=Metrics(steps=plain))
    html = page("s", [bad, reference])
    section = html[html.index('<section id="case-1">') :]
    assert section.count("<svg") == 2
    assert "loss over llama-single-base (loss off by 1.0e+00 at most)" in section
    svg = ET.fromstring(re.findall(r"<svg.*?</svg>", section)[0])
    lines = {line.get("class"): (line.get("points") or "").split() for line in svg}
    assert set(lines) == {"own", "other"}
    assert lines["own"][:2] == lines["other"][:2] != lines["own"][2:4]
    assert len(lines["own"]) == 5


def test_a_figure_that_nobody_reports_is_not_drawn(make_result: MakeResult) -> None:
    steps = [Step(step=n, loss=3.0) for n in range(1, 4)]
    one = make_result(verdict=Verdict.FAILED, message="x", metrics=Metrics(steps=steps))
    assert [said for said, _ in pictures(one, [one])] == ["loss"]
    never = replace(one, facts=None)
    assert pictures(never, [never]) == []


def test_what_is_no_number_is_a_gap_and_told(make_result: MakeResult) -> None:
    steps = [Step(step=n, loss=math.nan if n == 3 else 3.0) for n in range(1, 6)]
    one = make_result(verdict=Verdict.FAILED, message="x", metrics=Metrics(steps=steps))
    ((said, picture),) = pictures(one, [one])
    assert said == "loss; loss nan at step 3"
    assert str(picture).count("<polyline") == 2


wild = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 10)


@given(st.lists(wild, max_size=20), st.none() | st.floats(0, 5))
def test_any_figures_give_a_picture_with_numbers_in_it(
    values: list[float | None], limit: float | None
) -> None:
    svg = str(curves({"own": list(enumerate(values))}, "<said>", limit=limit))
    ET.fromstring(svg)
    assert "<said>" not in svg
    assert "nan" not in svg
    assert "inf" not in svg


@pytest.mark.parametrize(
    ("failing", "words"),
    [
        (Failing("2026-11-27", 1), "since 2026-11-27, 1 night"),
        (Failing("2026-11-27", 30, is_open=True), "since before 2026-11-27, 30 nights"),
    ],
)
def test_since_when_in_words(failing: Failing, words: str) -> None:
    assert failing.words == words
