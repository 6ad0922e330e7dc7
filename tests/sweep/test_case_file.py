"""case.json and findings.json: what was planned and judged comes back, or is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.case import file as case_file
from sweep.checks import Context
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.judge import findings, judge
from tests.sweep.planning import planned


def test_a_case_comes_back_as_it_was_planned(tmp_path: Path) -> None:
    (one,) = planned(["arch=llama", "layout=cp4_ep4", "feature=none_resume", "seed=3"])
    one = replace(one, config_dir="my conf")
    case_file.write(one, tmp_path)
    assert case_file.read(tmp_path).planned == one


def test_findings_come_back_and_before_the_first_judging_there_are_none(
    tmp_path: Path, make_facts: Callable[..., Facts]
) -> None:
    assert findings.load(tmp_path) is None
    judgement = judge(make_facts(exit_code=1), Context())
    findings.save(judgement, tmp_path)
    assert findings.load(tmp_path) == judgement


@pytest.mark.parametrize("text", ["{", "[]", '{"case": 1}'])
def test_a_damaged_file_is_one_line_that_names_it(tmp_path: Path, text: str) -> None:
    for name, read in ((case_file.NAME, case_file.read), (findings.NAME, findings.load)):
        (tmp_path / name).write_text(text)
        with pytest.raises(RequestError, match=f"{name}: .*; move the case's folder away") as told:
            read(tmp_path)
        assert "\n" not in str(told.value)


def test_a_file_that_is_gone_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"case.json is gone: name the suite"):
        case_file.read(tmp_path)
