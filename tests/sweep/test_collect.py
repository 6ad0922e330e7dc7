"""Collecting a detached sweep, with a squeue that says what a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sweep import collect
from sweep import facts as facts_file
from sweep.case.folder import read_plan
from sweep.case.machine import Machine
from sweep.cli import arguments
from sweep.facts import Facts
from sweep.judge import Verdict, findings, known_failures
from sweep.plan import plan
from sweep.plan.earlier import Earlier
from sweep.run import launch
from sweep.session.driver import Session
from sweep.slurm.jobs import SlurmJob, Submitted, write_jobs
from tests.sweep.conftest import Says
from tests.sweep.planning import COMMAND, composed
from tests.sweep.sessions import leave_facts

EXPECTED = '[{case: "*", check: exit, message: ".", issue: "https://example.org/1"}]'
ASKED = ["-m", "--config-dir", "mine", "detach=true"]


@pytest.fixture
def detached(outputs: Path) -> Session:
    """Two cases that were submitted as jobs 9_0 and 9_1."""
    combinations = [
        [f"arch={arch}", "layout=single", f"outputs={outputs}", *COMMAND]
        for arch in ("llama", "qwen3")
    ]
    cases = [replace(case, config_dir="mine") for case in plan(combinations, composed, Machine())]
    session = Session.begin(cases, Machine(), live=False, detach=True, argv=ASKED)
    jobs = {
        one.case.id: SlurmJob(f"9_{index}", "name", "")
        for index, one in enumerate(session.runnable)
    }

    def submit() -> None:
        for index, job in enumerate(jobs.values()):
            session.submitted(index, Submitted(job, None))  # type: ignore[arg-type]
        write_jobs(session.folder, jobs)
        session.leave()

    assert session.execute(submit) == 0
    return session


def collected(outputs: Path, *words: str) -> int:
    return arguments.run(collect.USAGE, collect.main, [f"outputs={outputs}", "grace=0", *words])


def test_what_has_ended_is_judged_and_what_runs_is_named(
    detached: Session, outputs: Path, make_facts: Callable[..., Facts],
    says: Says, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    leave_facts(detached, 0, make_facts)
    says("squeue", "printf '9_0|COMPLETED\\n9_1|PENDING\\n'")
    assert collected(outputs) == 3
    said = capsys.readouterr()
    assert "qwen3-single-base: PENDING, job 9_1" in said.out
    assert "1 of 2 cases wait or run in Slurm" in said.err
    assert [path.parent.name for path in detached.folder.glob("*/findings.json")] == [
        "llama-single-base"
    ]
    says("squeue", "printf '9_1|CANCELLED\\n'")
    assert collected(outputs, "wait=true") == 1
    said = capsys.readouterr()
    assert "the job was cancelled in Slurm" in said.out
    assert "wait or run" not in said.err
    assert "cases have no result" not in said.err


def test_a_case_whose_job_lost_sight_of_its_sweep_or_never_was_has_no_result(
    detached: Session, outputs: Path, make_facts: Callable[..., Facts],
    says: Says, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    leave_facts(detached, 0, make_facts)
    says("squeue", "")
    gone = {"case": detached.runnable[1].case, "interrupted": True,
            "error": f"interrupted: {launch.ORPHANED}"}  # fmt: skip
    case_dir = detached.folder / detached.runnable[1].case.id
    facts_file.save(make_facts().model_copy(update=gone), case_dir)
    assert collected(outputs) == 3
    assert "1 of 2 cases have no result" in capsys.readouterr().err
    assert Earlier(detached.folder).is_to_run(case_dir.name)

    (case_dir / "facts.json").unlink()
    jobs = detached.folder / "slurm.json"
    first = dict(list(json.loads(jobs.read_text()).items())[:1])
    jobs.write_text(json.dumps(first))
    assert collected(outputs) == 3
    assert "1 of 2 cases have no result" in capsys.readouterr().err


def test_what_was_asked_for_stays_what_it_was(
    detached: Session, outputs: Path,
    says: Says, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    says("squeue", "printf '9_0|CANCELLED\\n9_1|PENDING\\n'")
    assert collected(outputs) == 1
    assert "python -m sweep --config-dir mine arch=llama" in capsys.readouterr().out
    assert read_plan(detached.folder)["argv"] == ASKED


@pytest.mark.parametrize(("folder", "words"), [("mine", []), ("yours", ["--config-dir", "yours"])])
def test_cases_are_judged_with_the_folder_that_they_ran_with_or_that_is_given(
    detached: Session, outputs: Path, make_facts: Callable[..., Facts], says: Says,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, words: list[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "yours"):
        (tmp_path / name).mkdir()
        (tmp_path / name / known_failures.FILE).write_text(EXPECTED if name == folder else "[]")
    leave_facts(detached, 0, make_facts, exit_code=1)
    says("squeue", "printf '9_0|COMPLETED\\n9_1|PENDING\\n'")
    assert collected(outputs, *words) == 3
    judgement = findings.load(detached.folder / "llama-single-base")
    assert judgement is not None
    assert judgement.verdict is Verdict.KNOWN


def test_a_slurm_that_is_silent_leaves_everything_as_it_is(
    detached: Session, outputs: Path,
    says: Says, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    says("squeue", "echo down >&2; exit 1")
    assert collected(outputs) == 3
    assert "Slurm does not answer squeue: down" in capsys.readouterr().out
    assert not list(detached.folder.glob("*/facts.json"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["wait=maybe"], "wait=maybe: say true or false"),
        (["grace=long"], "grace=long: say a number of seconds"),
        (["grace=nan"], "grace=nan: say a number of seconds"),
        (["sweep=20200101-000000"], "no sweep 20200101-000000"),
    ],
)
def test_a_wrong_request_is_one_line(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert arguments.run(collect.USAGE, collect.main, [f"outputs={tmp_path}", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_sweep_of_this_machine_has_nothing_to_collect(
    outputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    combinations = [["arch=llama", "layout=single", f"outputs={outputs}", *COMMAND]]
    session = Session.begin(plan(combinations, composed, Machine()), Machine(), live=False)
    assert collected(outputs, f"sweep={session.folder.name}") == 2
    assert "was not submitted to Slurm" in capsys.readouterr().err
