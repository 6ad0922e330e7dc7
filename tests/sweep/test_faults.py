"""The suite of planted faults, and what it makes of its results."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from sft.faults import FAULTS
from sweep.checks import CHECKS, Finding, Outcome
from sweep.facts import Facts
from sweep.files import conf_dir
from sweep.judge import Judgement, Verdict
from sweep.report import Result
from sweep.report.detection import Detection
from tests.sweep.conftest import CASE

SUITE = yaml.safe_load((conf_dir() / "suite" / "faults.yaml").read_text())
Make = Callable[..., Result]


@pytest.fixture
def make_result(make_facts: Callable[..., Facts], tmp_path: Path) -> Make:
    """A case with a fault planted in it, and the checks that failed."""

    def make(fault: str | None, failed: Sequence[str] = (), margin: float | None = None) -> Result:
        case = CASE.model_copy(update={"fault": fault, "id": f"a-single-none-fault_{fault}"})
        findings = [
            Finding(check=name, outcome=Outcome.FAIL, message=f"{name} says so", margin=margin)
            for name in failed
        ]
        verdict = Verdict.FAILED if failed else Verdict.PASSED
        facts = make_facts().model_copy(update={"case": case})
        return Result(Judgement(case=case, verdict=verdict, findings=findings), tmp_path, "", facts)

    return make


def planted() -> dict[str, list[str]]:
    """Fault -> the strengths that the suite plants it with."""
    found: dict[str, list[str]] = {}
    for row in SUITE["rows"]:
        faults = row["fault"] if isinstance(row["fault"], list) else [row["fault"]]
        for one in filter(None, faults):
            name, _, strength = one.partition(":")
            found.setdefault(name, []).append(strength)
    return found


def test_the_suite_plants_every_fault_at_every_strength() -> None:
    found = planted()
    assert found.keys() == FAULTS.keys()
    for name, fault in FAULTS.items():
        strengths = sorted(float(one) for one in found[name] if one)
        assert strengths == sorted(fault.strengths), name


def test_every_fault_has_one_check_that_is_meant_for_it() -> None:
    meant = [name for names in SUITE["caught_by"].values() for name in names]
    assert sorted(meant) == sorted(FAULTS)
    assert SUITE["caught_by"].keys() <= CHECKS.keys()


def test_every_row_has_a_clean_case_beside_it() -> None:
    def cases(row: dict[str, Any]) -> set[tuple[str, str]]:
        archs = row["arch"] if isinstance(row["arch"], list) else [row["arch"]]
        return {(arch, "single") for arch in archs}

    clean = [case for row in SUITE["rows"] if not row["fault"] for case in cases(row)]
    for row in SUITE["rows"]:
        assert cases(row) <= set(clean)


def detect(folder: Path, *results: Result) -> int:
    detection = Detection({"parity": ["loud", "quiet"], "exit": ["dies"]})
    return detection.conclude(folder, results)


def test_faults_that_are_caught_by_the_check_meant_for_them_exit_0(
    make_result: Make, tmp_path: Path
) -> None:
    results = make_result(None), make_result("loud:2", ["parity", "alive"], 31.4)
    assert detect(tmp_path, *results) == 0
    table = (tmp_path / "detection.md").read_text()
    assert "| `loud` | 2 | a-single-none | parity | parity, alive | 31 | silent |" in table
    row = json.loads((tmp_path / "detection.json").read_text())[0]
    assert (row["is_caught"], row["control"], row["margin"]) == (True, False, 31.4)


@pytest.mark.parametrize("others", [[], ["alive"]])
def test_a_fault_that_the_check_meant_for_it_misses_is_listed(
    make_result: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str], others: list[str]
) -> None:
    assert detect(tmp_path, make_result("quiet", others), make_result("loud", ["parity"])) == 1
    said = capsys.readouterr()
    assert "1 of 2 planted faults" in said.out
    seen = "alive" if others else "nothing"
    assert f"missed: a-single-none-fault_quiet by parity, caught by {seen}" in said.err
    assert "**missed**" in (tmp_path / "detection.md").read_text()


def test_a_clean_case_that_fails_is_a_false_alarm(
    make_result: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert detect(tmp_path, make_result("loud", ["parity"]), make_result(None, ["alive"])) == 1
    assert "false alarm" in capsys.readouterr().err


def test_the_control_shows_what_dies(make_result: Make, tmp_path: Path) -> None:
    assert detect(tmp_path, make_result("dies", ["exit", "finite"])) == 0
    assert "| shows |" in (tmp_path / "detection.md").read_text()


def test_a_suite_with_a_fault_that_no_check_is_meant_for_misses_it(
    make_result: Make, tmp_path: Path
) -> None:
    assert detect(tmp_path, make_result("new", ["parity"])) == 1
