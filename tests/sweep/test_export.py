"""The check export: the loss of an exported checkpoint, who exports what, and who may ask."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweep import trainers
from sweep.checks import Context, Finding, Outcome, export
from sweep.errors import RequestError
from sweep.facts import ExportFacts, Facts, LaunchFacts
from sweep.run import consult, exported
from sweep.schema import Settings, TrainerConf
from sweep.trainers.base import Command, Launch, exports_at
from sweep.trainers.command import CommandConf
from sweep.trainers.hf_trainer import HfTrainerConf
from sweep.trainers.sft import SftConf
from tests.sweep.adapters import case_for, launched
from tests.sweep.commands import sweep

Make = Callable[..., Facts]


def judged(make_facts: Make, **values: Any) -> Finding | None:
    """The finding over a case whose loss at step 5 is 2.5."""
    facts = make_facts()
    facts.export = ExportFacts(**values)
    return export.check(facts, Context())


def test_the_next_loss_passes_and_says_how_far_it_is(make_facts: Make) -> None:
    finding = judged(make_facts, step=5, loss=2.5 * (1 + 1e-7))
    assert finding is not None
    assert (finding.outcome, finding.message) == (Outcome.PASS, "")
    assert finding.metrics["export/loss_delta"] == pytest.approx(1e-7, rel=1e-3)


@pytest.mark.parametrize("loss", [2.5001, float("nan")])
def test_another_loss_fails(make_facts: Make, loss: float) -> None:
    finding = judged(make_facts, step=5, loss=loss)
    assert finding is not None
    assert (finding.outcome, finding.folder) == (Outcome.FAIL, "launches/1_train")
    assert "in what was exported after step 4" in finding.message
    assert "step 5: loss is 2.5" in finding.message
    assert finding.margin is not None
    assert finding.margin > 1


def test_what_the_files_lack_fails_whatever_the_loss(make_facts: Make) -> None:
    finding = judged(make_facts, step=5, loss=2.5, problems=["lm_head.weight is missing", "more"])
    assert finding is not None
    assert finding.outcome is Outcome.FAIL
    said = "the exported checkpoint: lm_head.weight is missing (2 such findings)"
    assert finding.message == said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"reason": "the trainer exports nothing"}, "not compared: the trainer exports nothing"),
        ({"step": 9, "loss": 2.5}, "not compared: there is no loss of step 9 to compare"),
    ],
)
def test_what_cannot_be_seen_is_shown_and_fails_nothing(
    make_facts: Make, values: dict[str, Any], said: str
) -> None:
    finding = judged(make_facts, **values)
    assert finding is not None
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, True)
    assert finding.message == said


def test_a_dtype_without_a_threshold_fails_nothing(make_facts: Make) -> None:
    facts = make_facts()
    facts.case = facts.case.model_copy(update={"device": "cpu", "dtype": "float16"})
    facts.export = ExportFacts(step=5, loss=2.0)
    finding = export.check(facts, Context())
    assert finding is not None
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, True)
    assert "conf/thresholds.yaml has no export.loss.cpu.float16" in finding.message


def test_nobody_asked(make_facts: Make) -> None:
    assert export.check(make_facts(), Context()) is None


# Who exports, when and where.


@pytest.mark.parametrize("trainer", [SftConf(), HfTrainerConf()])
def test_the_first_launch_exports_before_its_last_step(
    trainer: TrainerConf, tmp_path: Path
) -> None:
    settings = case_for(trainer, resume_at=[3])
    (_, first), (_, second) = launched(settings, tmp_path)
    whole, resumed = (json.loads((path / "config.json").read_text()) for path in (first, second))
    folder = trainers.of(settings).export(settings, first)
    if isinstance(trainer, HfTrainerConf):
        assert (whole["export_at"], whole["export"]) == (7, str(folder))
        assert resumed["export_at"] is None
    else:
        assert (whole["checkpoint"]["export_at"], folder) == ([7], first / "exports/step_7")
        assert resumed["checkpoint"]["export_at"] == []


def test_one_step_has_none_after_it_and_nobody_has_to() -> None:
    settings = case_for(SftConf())
    assert exports_at(settings, Launch("train", 1, 8)) == 7
    assert exports_at(settings, Launch("train", 1, 1)) is None
    assert exports_at(settings, Launch("resume", 4, 8)) is None
    settings.export = False
    assert exports_at(settings, Launch("train", 1, 8)) is None


def command(**conf: Any) -> Settings:
    return case_for(CommandConf(argv=["train", "--export-at={export_at}"], **conf))


def test_a_command_says_where_it_exports(tmp_path: Path) -> None:
    settings = command(export="{output_dir}/hf_{export_at}")
    [(started, directory)] = launched(settings, tmp_path)
    assert started.argv[-1] == "--export-at=7"
    assert trainers.of(settings).export(settings, directory) == directory / "hf_7"
    assert trainers.of(command()).export(command(), directory) is None


def test_a_placeholder_that_is_none_is_refused_while_planning() -> None:
    settings = command(export="{output}/hf")
    with pytest.raises(RequestError, match=r"trainer.export: \{output\} is no placeholder"):
        trainers.of(settings).unavailable(settings)


# Who asks.


class Oracle:
    """Stands for the process: notes what it is asked, and answers."""

    def __init__(self, exit_code: int = 0, loss: float = 2.5) -> None:
        self.asked: list[list[str]] = []
        self.loss = loss
        self.exit_code = exit_code

    def __call__(self, launch: Launch, command: Command, directory: Path) -> LaunchFacts:
        self.asked.append(command.argv)
        if not self.exit_code:
            answer = {"step": 5, "loss": self.loss, "turned_picks": 1, "problems": []}
            (directory / consult.ANSWER).write_text(json.dumps(answer), encoding="utf-8")
        return LaunchFacts(
            name=launch.name, directory="case/export", argv=command.argv, first_step=1,
            last_step=5, exit_code=self.exit_code, limit_seconds=9.0, started=0.0, seconds=2.0,
            cpu_seconds=1.5, failure="out of memory" if self.exit_code else "",
        )  # fmt: skip


def looked(
    facts: Facts, case_dir: Path, process: Oracle, *folders: str, export: str | None = "hf"
) -> ExportFacts:
    """What is found of a case that left these folders."""
    first = facts.launches[0]
    for name in folders:
        (case_dir / first.directory / name).mkdir(parents=True)
    place = None if export is None else case_dir / first.directory / export
    return exported.look(
        place, Path("/model"), {"dtype": "float32"}, "cpu", case_dir, first, process
    )


def test_the_oracle_gets_the_export_the_batches_and_the_loss(
    make_facts: Make, tmp_path: Path
) -> None:
    process = Oracle()
    said = looked(make_facts(), tmp_path, process, "hf", consult.TAPS)
    assert (said.step, said.loss, said.turned_picks, said.cpu_seconds) == (5, 2.5, 1, 1.5)
    [argv] = process.asked
    assert argv[argv.index("oracle.export") + 2 :][:1] == ["/model"]
    assert argv[argv.index("--after") + 1] == "4"
    assert argv[argv.index("--loss") + 1] == "2.5"


@pytest.mark.parametrize(
    ("folders", "place", "changes", "reason", "problem"),
    [
        ([consult.TAPS], None, {}, "exports nothing in Hugging Face's format", ""),
        (["hf"], "hf", {}, "the trainer shows no batches", ""),
        ([consult.TAPS], "hf", {}, "", "there is no launches/1_train/hf"),
        (["hf", consult.TAPS], "hf", {"exit_code": 1}, "the trainer did not end well", ""),
    ],
)
def test_where_there_is_nothing_to_ask_nobody_is_asked(
    make_facts: Make, tmp_path: Path, folders: list[str], place: str | None,
    changes: dict[str, Any], reason: str, problem: str,
) -> None:  # fmt: skip
    process = Oracle()
    said = looked(make_facts(**changes), tmp_path, process, *folders, export=place)
    assert reason in said.reason
    assert bool(said.reason) == bool(reason)
    assert said.problems == ([problem] if problem else [])
    assert process.asked == []


def test_weights_outside_of_the_case_are_never_removed(make_facts: Make, tmp_path: Path) -> None:
    place, case_dir = tmp_path / "elsewhere", tmp_path / "case"
    place.mkdir()
    (place / "model.safetensors").write_text("x", encoding="utf-8")
    said = looked(make_facts(), case_dir, Oracle(), consult.TAPS, export=str(place))
    assert said.loss == 2.5
    assert (place / "model.safetensors").exists()
    gone = looked(make_facts(), tmp_path / "other", Oracle(), export=str(tmp_path / "nowhere"))
    assert gone.problems == [f"there is no {tmp_path}/nowhere"]


@pytest.mark.parametrize(("loss", "is_kept"), [(2.5, False), (2.6, True)])
def test_weights_stay_where_their_loss_is_wrong(
    make_facts: Make, tmp_path: Path, loss: float, is_kept: bool
) -> None:
    facts = make_facts()
    folder = tmp_path / facts.launches[0].directory / "hf"
    folder.mkdir(parents=True)
    for name in ("model.safetensors", "config.json"):
        (folder / name).write_text("x", encoding="utf-8")
    looked(facts, tmp_path, Oracle(loss=loss), consult.TAPS)
    assert (folder / "model.safetensors").exists() == is_kept
    assert (folder / "config.json").exists()


def test_an_oracle_that_fails_says_why(make_facts: Make, tmp_path: Path) -> None:
    said = looked(make_facts(), tmp_path, Oracle(exit_code=1), "hf", consult.TAPS)
    assert said.reason == "the oracle failed (out of memory); see export/launcher.log"


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["sft", "hf_trainer"])
def test_ranks_export_what_they_train(trainer: str, tmp_path: Path) -> None:
    done = sweep(
        f"outputs={tmp_path}", "arch=qwen3_moe", "layout=fsdp2_ep2", "feature=none",
        f"trainer={trainer}", "steps=2", seconds=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*/*/facts.json")
    facts = Facts.model_validate_json(path.read_bytes())
    assert facts.export is not None
    assert (facts.export.reason, facts.export.problems, facts.export.step) == ("", [], 2)
    assert facts.export.loss == pytest.approx(facts.steps[1].loss, rel=1e-6)
