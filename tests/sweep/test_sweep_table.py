"""A recorded sweep as a Markdown table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scripts import sweep_table
from sweep.facts import Facts, Step
from tests.sweep.conftest import CASE
from tests.sweep.recording import named, night


def test_each_case_is_a_row_with_what_it_took(
    outputs: Path, make_facts: Callable[..., Facts], capsys: pytest.CaptureFixture[str]
) -> None:
    night(outputs, 1, make_facts(first_step_seconds=7.0), named(make_facts([]), "silent"))
    assert sweep_table.main([f"outputs={outputs}"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Sweep 20260101-000000: torch 2.13.0, git_sha abc, git_dirty false."
    assert said[4:6] == [
        f"| {CASE.id} | passed | 2.9000 > 2.5000 | 7 | - | - | - | - |",
        "| silent | failed | - | - | - | - | - | - |",
    ]


def test_an_architectures_launches_are_split_into_what_took_them(
    outputs: Path, make_facts: Callable[..., Facts], capsys: pytest.CaptureFixture[str]
) -> None:
    counted = {"compile_seconds": [3.0, 2.0]}
    steps = [
        Step.model_validate(
            {
                "step": n,
                "loss": 3.0 - n / 10,
                "grad_norm": 1.0,
                "step_seconds": seconds,
                "counters": counted if n == 1 else {},
            }
        )
        for n, seconds in enumerate([5.0, 1.0, 1.0, 1.0, 1.0], 1)
    ]
    facts = make_facts(steps, first_step_seconds=9.0, seconds=15.0)
    night(outputs, 1, facts, named(make_facts([]), "silent"))
    assert sweep_table.main([f"outputs={outputs}"]) == 0
    said = capsys.readouterr().out.splitlines()
    # 4 s until the first step of 5, of which 3 compiling; 4 steps more; 2 s to the end
    assert said[-2:] == [
        f"| {CASE.arch} | 1 | 15 | 4 | 3 | 6 | 2 |",
        "| all | 1 | 15 | 4 | 3 | 6 | 2 |",
    ]


def test_a_wrong_request_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep_table.main(["swep=latest"]) == 2
    assert sweep_table.main([f"outputs={tmp_path}"]) == 2
    unknown, nothing = capsys.readouterr().err.splitlines()
    assert "did you mean sweep=?" in unknown
    assert "nothing is recorded yet" in nothing
