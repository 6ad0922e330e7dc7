"""Results of a sweep, as good or as bad as a test wants them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.checks import Finding, Outcome
from sweep.facts import Facts
from sweep.judge import Judgement, Verdict
from sweep.report import Result, rerun_command
from sweep.report.runs import Run
from tests.sweep.conftest import CASE

FOLDER = Path("outputs/20260101-000000")
SERVER = "http://127.0.0.1:5000"

MakeResult = Callable[..., Result]


@pytest.fixture
def make_result(make_facts: Callable[..., Facts]) -> MakeResult:
    """A case's result: its names, its verdict, and the message of the check that failed."""

    def make(
        arch: str = "llama", layout: str = "cp4_ep1", feature: str = "base",
        verdict: Verdict = Verdict.PASSED, message: str = "", run_id: str = "", **launch: object,
    ) -> Result:  # fmt: skip
        names = {"arch": arch, "layout": layout, "feature": feature}
        labels = {"id": f"{arch}-{layout}-{feature}", "world_size": 1 if layout == "single" else 4}
        case = CASE.model_copy(update=labels | names)
        findings = [Finding(check="exit", outcome=Outcome.PASS)]
        if message:
            findings.append(Finding(check="parity", outcome=Outcome.FAIL, message=message,
                                    folder="launches/1_train"))  # fmt: skip
        facts = make_facts(**launch).model_copy(update={"case": case})
        return Result(
            Judgement(case=case, verdict=verdict, findings=findings),
            FOLDER / case.id,
            rerun_command([f"{key}={value}" for key, value in names.items()]),
            None if verdict is Verdict.UNAVAILABLE else facts,
            Run(uri=SERVER, run_id=run_id, experiment_id="1") if run_id else None,
        )

    return make
