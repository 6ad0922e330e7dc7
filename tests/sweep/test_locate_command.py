"""What `sweep.locate` is asked, what it holds a case against, and what reports say of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.case.planned import Planned
from sweep.checks import Finding, Outcome
from sweep.errors import MachineryError, RequestError
from sweep.facts import Facts, Step
from sweep.judge import Judgement, Verdict
from sweep.locate import failures, references
from sweep.locate.__main__ import main
from sweep.locate.place import OUTSIDE, Place
from sweep.locate.references import Kind, Reference, choose, first_off
from sweep.locate.report import Report, of_documents
from sweep.report.markdown import failure_note
from sweep.report.result import LOCATED, Result
from tests.sweep.locating import sweep_of
from tests.sweep.report.conftest import make_result  # noqa: F401  # a fixture

PLACE = Place(
    1,
    "forward",
    "model.layers.0.mlp",
    "its output",
    size=1e-3,
    rounding=1e-7,
    tokens=3,
    where="row 0.1, position 4 (document 0 of the row)",
    rank=1,
)


def chosen(
    cases: list[Planned], case_id: str, failed: str | None = None, against: str | None = None
) -> Reference:
    """What a case without facts is held against, where this check failed."""
    known = {case.case.id: case for case in cases}
    judgement = None
    if failed is not None:
        finding = Finding(check=failed, outcome=Outcome.FAIL)
        judgement = Judgement(case=known[case_id].case, verdict=Verdict.FAILED, findings=[finding])
    return choose(known[case_id], known, {}, judgement, against)


@pytest.fixture
def cases(tmp_path: Path) -> list[Planned]:
    return sweep_of(
        tmp_path,
        "arch=llama layout=single feature=none",
        "arch=llama layout=fsdp2_ep1 feature=none",
        "arch=llama layout=single feature=none_resume",
    )


def test_a_layout_is_held_against_a_plainer_one(cases: list[Planned]) -> None:
    found = chosen(cases, "llama-fsdp2_ep1-none", "parity")
    assert (found.kind, found.name) == (Kind.case, "llama-single-none")


def test_a_resume_that_failed_is_held_against_the_uninterrupted_run(cases: list[Planned]) -> None:
    assert chosen(cases, "llama-single-none_resume", "resume").kind is Kind.uninterrupted


def test_what_only_the_oracle_saw_is_held_against_it(cases: list[Planned]) -> None:
    assert chosen(cases, "llama-fsdp2_ep1-none", "oracle").kind is Kind.oracle


def test_the_plainest_case_is_held_against_the_oracle(cases: list[Planned]) -> None:
    assert chosen(cases[:1], "llama-single-none").kind is Kind.oracle


def test_a_lone_case_is_held_against_one_process(cases: list[Planned]) -> None:
    found = chosen(cases[1:2], "llama-fsdp2_ep1-none", "parity")
    assert found.kind is Kind.case
    assert found.settings is not None
    assert found.settings.layout.world_size == 1


def test_against_names_the_reference(cases: list[Planned]) -> None:
    found = chosen(cases, "llama-single-none", against="llama-fsdp2_ep1-none")
    assert found.name == "llama-fsdp2_ep1-none"


@pytest.mark.parametrize(
    ("against", "said"),
    [
        ("oracel", "did you mean oracle?"),
        ("llama-single-none", "there is no reference"),
        ("uninterrupted", "does not resume"),
    ],
)
def test_what_cannot_be_a_reference_is_refused(
    cases: list[Planned], against: str, said: str
) -> None:
    with pytest.raises(RequestError, match=said):
        chosen(cases, "llama-single-none", against=against)


def test_a_case_of_several_nodes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (case,) = sweep_of(tmp_path, "arch=llama layout=fsdp4_ep1_n2 feature=none")
    path = tmp_path / "planned" / case.case.id / "case.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"unavailable": None}))
    assert main([f"case={case.case.id}", "sweep=planned", f"outputs={tmp_path}"]) == 2
    assert "runs on several nodes" in capsys.readouterr().err


def test_no_more_steps_are_run_than_show_the_difference(make_facts: Callable[..., Facts]) -> None:
    steps = make_facts().steps
    other = [step.model_copy(update={"grad_norm": 1.0 + (step.step > 2) * 1e-4}) for step in steps]
    assert first_off(steps, other) == 3
    assert first_off(steps, steps) is None
    nan = [Step(step=1, loss=float("nan")), *steps[1:]]
    assert first_off(nan, steps) == 1


def test_the_case_is_run_uncompiled_and_without_what_says_nothing_more(
    cases: list[Planned],
) -> None:
    settings = cases[2].settings
    compiled = replace(settings, feature=replace(settings.feature, compile=True))
    once = references.ours(compiled, 2, resumes=False)
    assert (once.steps, once.feature.compile, once.feature.resume_at) == (2, False, [])
    assert references.ours(compiled, 2, resumes=True).steps == settings.steps


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep=planned"], "case=... is missing"),
        (["case=llama-single-non"], "did you mean llama-single-none"),
        (["case=llama-single-none", "keep=perhaps"], "say true or false"),
        (["case=llama-single-none", "sweep=last"], "no sweep last"),
        (["case=llama-single-none", "layout=single"], "there is no argument layout"),
    ],
)
@pytest.mark.usefixtures("cases")
def test_a_wrong_request_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main([*words, f"outputs={tmp_path}"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("place", "code"), [(PLACE, 0), (None, 1)])
@pytest.mark.usefixtures("cases")
def test_the_exit_code_says_whether_something_differs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: Place | None,
    code: int,
) -> None:
    found = Report("llama-single-none", "the oracle", place)
    monkeypatch.setattr("sweep.locate.__main__.look", lambda *_: found)
    assert main(["case=llama-single-none", "--json", f"outputs={tmp_path}"]) == code
    assert json.loads(capsys.readouterr().out)["line"] == found.line


def test_the_report_says_all_that_is_known() -> None:
    text = str(Report("case", "reference", PLACE, ["a note"]))
    for part in (
        "step 1, forward",
        "model.layers.0.mlp",
        "3 tokens, most at row 0.1, position 4",
        "on rank 1",
        "1.0e-03 relative; rounding does 1.0e-07",
        "agree",
        "a note",
    ):
        assert part in text


def test_what_is_not_finite_is_valid_json() -> None:
    found = Report("case", "reference", replace(PLACE, size=float("inf")))
    assert json.loads(json.dumps(found.as_json(), allow_nan=False))["place"]["size"] is None
    assert "inf relative" in str(found)


def test_a_document_that_is_not_the_sources_is_a_place() -> None:
    place = of_documents("step 2, row 1.0: a document ends after 3 tokens")
    assert (place.step, place.stage, place.module) == (2, "data", OUTSIDE)
    assert (place.where, place.what) == ("row 1.0", "a document ends after 3 tokens")


def failed(make: Callable[..., Result], folder: Path) -> Result:
    result = replace(make(verdict=Verdict.FAILED, message="off"), folder=folder)
    folder.mkdir()
    return result


def test_a_sweep_looks_into_each_failed_comparison(
    make_result: Callable[..., Result],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(failures, "look", lambda _folder, case_id: looked.append(case_id))
    result = failed(make_result, tmp_path / "case")
    passed = replace(make_result(arch="qwen3"), folder=result.folder)
    failures.look_into(tmp_path, [result, passed])
    assert looked == [result.case.id]


def test_what_cannot_be_located_says_why_in_the_report(
    make_result: Callable[..., Result],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise MachineryError("a launch ended before its first step")

    monkeypatch.setattr(failures, "look", fail)
    result = failed(make_result, tmp_path / "case")
    failures.look_into(tmp_path, [result])
    assert result.located == "not located: a launch ended before its first step"
    assert "parts at: not located" in failure_note(result)


def test_a_damaged_answer_is_no_line(make_result: Callable[..., Result], tmp_path: Path) -> None:  # noqa: F811
    result = failed(make_result, tmp_path / "case")
    assert result.located == ""
    path = result.folder / LOCATED
    path.parent.mkdir()
    path.write_text("{")
    assert result.located == ""
