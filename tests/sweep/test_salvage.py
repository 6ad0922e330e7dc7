"""What a job left that did not get to write its facts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from sweep.case import file as case_file
from sweep.case.planned import Planned
from sweep.facts import JobEnd
from sweep.run import salvage
from sweep.trainers.base import PROCESS
from tests.sweep.planning import planned

GOOD = {"loss": 2.0, "grad_norm": 1.0}


@pytest.fixture
def one() -> Planned:
    """A case of eleven launches: their names as text are not in their order."""
    resumes = ",".join(map(str, range(2, 12)))
    (found,) = planned(["arch=llama", "layout=single", "feature=none_resume",
                        f"feature.resume_at=[{resumes}]", "feature.min_steps=12"])  # fmt: skip
    return found


def left(folder: Path, one: Planned) -> Path:
    """The folder of the case, after its last launch was killed, and something else in it."""
    case_dir = folder / one.case.id
    case_file.write(one, case_dir)
    (case_dir / "launches").mkdir()
    (case_dir / "launches" / ".nfs0001").touch()
    for number in range(1, 12):
        name = "train" if number == 1 else "resume" if number == 2 else f"resume_{number - 1}"
        directory = case_dir / "launches" / f"{number}_{name}"
        directory.mkdir()
        line = json.dumps({"step": number, **GOOD})
        (directory / "metrics.jsonl").write_text(f"{line}\n")
        (directory / PROCESS).write_text('{"marker": "none"}')
        os.utime(directory / PROCESS, (1000.0 * number, 1000.0 * number))
    return case_dir


def test_launches_are_in_their_order_and_began_when_they_were_started(
    one: Planned, tmp_path: Path
) -> None:
    left(tmp_path, one)
    facts = salvage.facts_of(one, tmp_path, None, Path(), JobEnd("it was lost"))
    found = facts.launches
    assert [done.first_step for done in found] == [1, *range(3, 13)]
    assert [done.metrics.steps[0].step for done in found] == list(range(1, 12))
    assert [done.started for done in found] == [1000.0 * number for number in range(1, 12)]
    assert facts.error == "it was lost"


def test_the_last_line_of_its_log_is_said_with_why_it_ended(one: Planned, tmp_path: Path) -> None:
    left(tmp_path, one)
    (tmp_path / "job.log").write_text("first\nImportError: no torch\n\n")
    facts = salvage.facts_of(one, tmp_path, None, tmp_path / "job.log")
    assert facts.error == "the job died without leaving a result: ImportError: no torch"
