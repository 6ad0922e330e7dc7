"""The recipes of docs/extending.md do what they say, as they stand there."""

from __future__ import annotations

import csv
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from sweep import report
from sweep.checks import CHECKS, Context, Outcome
from sweep.facts import Facts, Step
from sweep.judge import Verdict, findings, judge
from sweep.report import FORMATS
from tests.sweep import small_sweep

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def recipe(heading: str) -> str:
    """The Python of a section."""
    page = (ROOT / "docs" / "extending.md").read_text()
    section = page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (code,) = BLOCK.findall(section)
    return str(code)


def module(heading: str) -> ModuleType:
    made = ModuleType("recipe")
    exec(compile(recipe(heading), heading, "exec"), made.__dict__)
    return made


@pytest.mark.parametrize(
    ("losses", "outcome"),
    [
        ((3.0, 2.5, 2.0), Outcome.PASS),
        ((2.0, 2.5, 3.0), Outcome.FAIL),
        ((2.0,), Outcome.INCONCLUSIVE),
    ],
)
def test_a_check_judges_by_facts_and_can_fail(
    make_facts: Callable[..., Facts], monkeypatch: pytest.MonkeyPatch,
    losses: tuple[float, ...], outcome: Outcome,
) -> None:  # fmt: skip
    monkeypatch.setitem(CHECKS, "falls", module("A check").check)
    steps = [Step(step=number, loss=loss) for number, loss in enumerate(losses, start=1)]
    judgement = judge(make_facts(steps, last_step=len(steps)), Context())
    by_check = {finding.check: finding for finding in judgement.findings}
    assert by_check["falls"].outcome is outcome
    if outcome is not Outcome.INCONCLUSIVE:
        assert by_check["falls"].metrics == {"loss/fall": losses[0] - losses[-1]}


def test_a_report_format_is_written_into_the_sweeps_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv_file = module("A report format")
    results = small_sweep.leave(tmp_path)
    monkeypatch.setitem(FORMATS, "results.csv", lambda of: csv_file.table(of.results))
    folder = tmp_path / small_sweep.SWEEP_ID
    report.write(folder, results)
    head, *rows = csv.reader((folder / "results.csv").read_text().splitlines())
    assert head == ["case", "verdict", "message"]
    assert [row[0] for row in rows] == [result.case.id for result in results]
    assert {row[1] for row in rows} == {result.judgement.verdict.value for result in results}


def test_another_store_has_each_case_once_and_its_last_verdict(tmp_path: Path) -> None:
    results = small_sweep.leave(tmp_path)
    for result in results:
        findings.save(result.judgement, result.folder)
    (tmp_path / "record.py").write_text(recipe("A store"))

    def verdicts() -> dict[str, str]:
        command = [sys.executable, tmp_path / "record.py", tmp_path / small_sweep.SWEEP_ID]
        subprocess.run(command, check=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
        with sqlite3.connect(tmp_path / "results.db") as database:
            return dict(database.execute("select case_id, verdict from results"))

    expected = {result.case.id: result.judgement.verdict.value for result in results}
    assert verdicts() == expected
    changed = results[0].judgement.model_copy(update={"verdict": Verdict.KNOWN})
    findings.save(changed, results[0].folder)
    assert verdicts() == expected | {results[0].case.id: "known"}


def test_every_file_that_a_recipe_names_is_there() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    named = re.findall(r"`((?:sweep|sft|conf|scripts|tests|tiny_models)/[\w/.]+)`", page)
    assert len(named) > 20
    missing = [name for name in named if not (ROOT / name).exists()]
    of_the_reader = {"conf/feature/detect_anomaly.yaml"}  # which the recipe makes
    assert set(missing) <= of_the_reader, missing
