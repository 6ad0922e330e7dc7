"""A case is run again where that tells by how much its figures differ, and no more often."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sweep import trainers
from sweep.case import file as case_file
from sweep.case.labels import settings_of
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.checks import Context, Outcome, resume
from sweep.checks import exit as exit_check
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.plan import estimates, plan
from sweep.run import job, salvage
from sweep.trainers.base import all_launches
from tests.sweep.planning import CPU, composed

TRAINER = """
import json, os, sys
out, first, last, behaviour = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
name = os.path.basename(out)
noise = int.from_bytes(os.urandom(4), "big") * 1e-14 if behaviour == "noisy" else 0.0
if behaviour == name:
    sys.exit(3)
with open(os.path.join(out, "metrics.jsonl"), "w") as file:
    for step in range(first, last + 1):
        figures = {"step": step, "loss": 3 - step / 7 + noise, "grad_norm": 1.0, "lr": 1e-4}
        print(json.dumps({**figures, "params_moved": 1.0, "from": sys.argv[5:]}), file=file)
"""


def planned(outputs: Path, behaviour: str, *more: str) -> Planned:
    script = outputs / "trainer.py"
    script.write_text(TRAINER)
    argv = f"[{sys.executable},{script},'{{output_dir}}','{{first_step}}','{{steps}}',{behaviour}]"
    words = ["arch=llama", "layout=single", "feature=none_resume", "trainer=command",
            f"trainer.argv={argv}", "trainer.resume.argv=['{resume_from}']", f"outputs={outputs}",
             *more]  # fmt: skip
    (one,) = plan([words], composed, CPU)
    return one


def run(outputs: Path, behaviour: str, *more: str) -> Facts:
    one = planned(outputs, behaviour, *more)
    one.settings.sweep_id = "20260101-000000"
    case_dir = outputs / "20260101-000000" / one.case.id
    case_dir.mkdir(parents=True)
    return job.run_case(one.settings, one.case, case_dir)


def folders(facts: Facts) -> list[str]:
    return [Path(launch.directory).name for launch in facts.launches]


def test_a_repeat_that_is_equal_to_the_bit_is_the_last(tmp_path: Path) -> None:
    facts = run(tmp_path, "exact")
    assert facts.error is None
    assert folders(facts) == ["1_train", "2_resume", "3_train_again"]
    assert [launch.repeats for launch in facts.launches] == ["", "", "train"]
    finding = resume.check(facts, Context())
    assert finding is not None
    assert finding.outcome is Outcome.PASS
    assert finding.metrics["resume/loss_noise"] == 0.0


def test_where_figures_differ_three_whole_runs_and_two_resumed_are_compared(tmp_path: Path) -> None:
    facts = run(tmp_path, "noisy")
    assert folders(facts) == [
        "1_train",
        "2_resume",
        "3_train_again",
        "4_train_again_2",
        "5_resume_again",
    ]
    finding = resume.check(facts, Context())
    assert finding is not None
    assert finding.metrics["resume/loss_noise"] > 0.0


def test_a_resume_is_repeated_from_what_the_first_run_saved(tmp_path: Path) -> None:
    facts = run(tmp_path, "noisy")
    first, again = (launch.argv for launch in facts.launches if "resume" in launch.name)
    assert first[-1] == again[-1]
    assert first[-1].endswith("1_train/checkpoint")


@pytest.mark.parametrize(
    ("more", "expected"),
    [(["noise.repeats=0"], ["train", "resume"]),
     (["noise.repeats=1"], ["train", "resume", "train_again"]),
     (["feature=none"], ["train"]),
     (["feature=none", "noise.parity=true"], ["train", "train_again", "train_again_2"]),
     (["feature=none_resume_twice"], ["train", "resume", "resume_2", "train_again", "train_again_2",
                                      "resume_again", "resume_2_again"])],
)  # fmt: skip
def test_how_often_is_a_setting(tmp_path: Path, more: list[str], expected: list[str]) -> None:
    one = planned(tmp_path, "exact", *more)
    launches = all_launches(trainers.of(one.settings), one.settings)
    assert [launch.name for launch in launches] == expected
    own = sum(launch.repeats is None for launch in launches)
    assert estimates.launches(one) == (min(own + 1, len(launches)), len(launches))


def test_a_repeat_that_crashes_fails_the_case(tmp_path: Path) -> None:
    facts = run(tmp_path, "3_train_again")
    assert folders(facts)[-1] == "3_train_again"
    finding = exit_check.check(facts, Context())
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("train_again: exit code 3")


def test_what_a_killed_job_left_of_repeats_is_read_back(tmp_path: Path) -> None:
    facts = run(tmp_path, "exact")
    one = planned(tmp_path, "exact")
    folder = tmp_path / facts.sweep_id
    case_file.write(one, folder / one.case.id)
    found = salvage.facts_of(one, folder, None, Path())
    assert [launch.repeats for launch in found.launches] == ["", "", "train"]


def test_too_many_repeats_are_refused() -> None:
    with pytest.raises(RequestError, match=r"noise\.repeats=11: say 0 or more"):
        settings_of(composed(["arch=llama", "layout=single", "noise.repeats=11"]), Machine())
