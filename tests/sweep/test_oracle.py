"""The check oracle: a case's figures next to those of plain transformers, and who may ask."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweep.case.labels import settings_of
from sweep.case.machine import Machine
from sweep.checks import Context, Finding, Outcome, oracle
from sweep.facts import Facts, LaunchFacts, OracleFacts, Step
from sweep.run import consult
from sweep.trainers import of as adapter_of
from sweep.trainers.base import Command, Launch
from tests.sweep.planning import COMMAND, composed

Make = Callable[..., Facts]
GROUPS = {"embedding": 0.5, "router": 0.1}


def step(number: int, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "step": number, "loss": 8.0 - number, "grad_norm": 2.0, "grad_norm_groups": GROUPS,
        "lr": 1e-4, "tokens": 100, "clip_coefficient": 0.5,
    }  # fmt: skip
    return Step.model_validate(values | changes)


def judged(
    make_facts: Make, ours: dict[int, dict[str, Any]], theirs: dict[int, dict[str, Any]],
    **opinion: Any,
) -> Finding:  # fmt: skip
    """The finding over five steps, changed by number, ours and the oracle's."""
    facts = make_facts([step(n, **ours.get(n, {})) for n in range(1, 6)])
    steps = [step(n, **{"close_picks": 0} | theirs.get(n, {})) for n in range(1, 6)]
    facts.oracle = OracleFacts(steps=steps, **opinion)
    finding = oracle.check(facts, Context())
    assert finding is not None
    return finding


def test_equal_figures_pass(make_facts: Make) -> None:
    finding = judged(make_facts, {}, {})
    assert (finding.outcome, finding.message) == (Outcome.PASS, "")
    assert finding.metrics["oracle/loss_delta_max"] == 0.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loss": 5.01}, "step 3: loss is 5.01, 5 in the oracle: off by 1.00e-02"),
        ({"grad_norm": 2.1}, "step 3: grad_norm is 2.1, 2 in the oracle"),
        ({"grad_norm_groups": GROUPS | {"router": 0.11}}, "step 3: grad_norm of router is 0.11"),
        ({"lr": 1.1e-4}, "step 3: lr is 0.00011, 0.0001 in the oracle"),
        ({"clip_coefficient": 0.55}, "step 3: clip_coefficient is 0.55, 0.5 in the oracle"),
        ({"tokens": 99}, "step 3: the loss is taken over 99 tokens, but 100 of its batch"),
        ({"loss": float("nan")}, "step 3: loss is nan"),
    ],
)
def test_a_figure_that_is_off_fails(make_facts: Make, changes: dict[str, Any], said: str) -> None:
    finding = judged(make_facts, {3: changes}, {})
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith(said)
    assert finding.folder == "launches/1_train"


def test_a_figure_that_is_off_says_its_threshold_and_how_far_beyond(make_facts: Make) -> None:
    finding = judged(make_facts, {2: {"loss": 6.06}}, {})
    assert "threshold 1.3e-06 relative (calibrated: correct at most" in finding.message
    assert finding.margin == pytest.approx(0.01 / 1.26e-6, rel=0.01)


def test_the_auxiliary_loss_is_compared_where_it_is_reported(make_facts: Make) -> None:
    theirs = {n: {"aux_loss": 1.0} for n in range(1, 6)}
    reported = {n: {"aux_loss": 1.001} for n in range(1, 6)}
    assert "aux_loss is 1.001" in judged(make_facts, reported, theirs).message
    silent = judged(make_facts, {}, theirs)
    assert silent.outcome is Outcome.PASS
    assert silent.message == "not compared, since it is not reported: aux_loss"


def test_a_trainer_without_gradient_norms_is_compared_by_its_losses(make_facts: Make) -> None:
    ours: dict[int, dict[str, Any]] = {
        n: {"grad_norm": None, "grad_norm_groups": {}} for n in range(1, 6)
    }
    finding = judged(make_facts, ours, {})
    assert finding.outcome is Outcome.PASS
    assert "not compared, since it is not reported: grad_norm" in finding.message
    assert judged(make_facts, ours | {2: ours[2] | {"loss": 6.1}}, {}).outcome is Outcome.FAIL


def test_picks_that_fall_as_the_trainer_says_are_told_and_excuse_nothing(make_facts: Make) -> None:
    theirs = {3: {"close_picks": 4, "turned_picks": 1}}
    finding = judged(make_facts, {}, theirs)
    assert finding.outcome is Outcome.PASS
    assert finding.message.startswith("1 picks of experts or keys, whose scores are equal but for")
    assert judged(make_facts, {4: {"loss": 4.0001}}, theirs).outcome is Outcome.FAIL


def test_documents_that_the_source_does_not_have_fail(make_facts: Make) -> None:
    data = {"source_documents": 40, "documents": 29, "wrong": 2, "problems": ["step 1, row 0: x"]}
    finding = judged(make_facts, {}, {}, data=data)
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("the data: step 1, row 0: x (2 such findings in 29 trained")
    assert judged(make_facts, {}, {}, data=data | {"wrong": 0}).outcome is Outcome.PASS


def test_steps_in_common_are_needed(make_facts: Make) -> None:
    facts = make_facts()
    facts.oracle = OracleFacts(steps=[step(9)])
    finding = oracle.check(facts, Context())
    assert finding is not None
    assert (finding.outcome, finding.message) == (
        Outcome.FAIL, "no step in common with the oracle",
    )  # fmt: skip


def test_without_batches_the_reason_is_shown_and_fails_nothing(make_facts: Make) -> None:
    facts = make_facts()
    facts.oracle = OracleFacts(reason="the trainer shows no batches")
    finding = oracle.check(facts, Context())
    assert finding is not None
    assert finding.advisory
    assert finding.message == "not compared: the trainer shows no batches"
    facts.oracle = OracleFacts(reason="step 1: bad", is_wrong=True)
    finding = oracle.check(facts, Context())
    assert finding is not None
    assert (finding.outcome, finding.advisory) == (Outcome.FAIL, False)
    facts.oracle = None
    assert oracle.check(facts, Context()) is None


def test_a_dtype_without_a_threshold_fails_nothing(make_facts: Make) -> None:
    facts = make_facts()
    facts.case = facts.case.model_copy(update={"device": "cpu", "dtype": "float16"})
    facts.oracle = OracleFacts(steps=[step(n) for n in range(1, 6)])
    finding = oracle.check(facts, Context())
    assert finding is not None
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, True)
    assert "conf/thresholds.yaml has no oracle.loss.cpu.float16" in finding.message


# Who asks, and when.


class Oracle:
    """Stands for the process: counts how often it is asked, and answers."""

    def __init__(self, exit_code: int = 0, close: int = 0, turned: int = 0) -> None:
        self.picks = {"close_picks": close, "turned_picks": turned}
        self.asked: list[list[str]] = []
        self.exit_code = exit_code

    def __call__(self, launch: Launch, command: Command, directory: Path) -> LaunchFacts:
        self.asked.append(command.argv)
        if not self.exit_code:
            figures = {"step": 1, "loss": 1.0, **self.picks}
            answer = {"steps": [figures], "data": {}}
            (directory / consult.ANSWER).write_text(json.dumps(answer), encoding="utf-8")
        return LaunchFacts(
            name=launch.name, directory="case/oracle", argv=command.argv, first_step=1,
            last_step=1, exit_code=self.exit_code, limit_seconds=9.0, started=0.0, seconds=2.0,
            cpu_seconds=1.5, failure="out of memory" if self.exit_code else "",
        )  # fmt: skip


ROW = {"step": 1, "input_ids": [5, 6], "labels": [6, -100], "position_ids": [0, 1]}


@pytest.fixture
def ask(tmp_path: Path, make_facts: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A function that consults about a case whose trainer wrote these rows, if any."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / consult.MANIFEST).write_text("{}", encoding="utf-8")

    def consulted(
        process: Oracle, case: str, rows: list[dict[str, Any]] | None, loss: float = 1.0,
        **settings: Any,
    ) -> OracleFacts:  # fmt: skip
        case_dir, first = tmp_path / case, make_facts([Step(step=1, loss=loss)]).launches[0]
        taps = case_dir / first.directory / consult.TAPS
        if rows is not None:
            taps.mkdir(parents=True, exist_ok=True)
            text = "".join(json.dumps(row) + "\n" for row in rows)
            (taps / "batches-0.jsonl").write_text(text, encoding="utf-8")
        case_dir.mkdir(exist_ok=True)
        return consult.consult(checkpoint, settings, "cpu", case_dir, first, process)

    return consulted


def test_cases_with_the_same_batches_ask_once(ask: Callable[..., Any]) -> None:
    process = Oracle()
    first = ask(process, "a", [ROW], lr=1e-4)
    assert (first.steps[0].loss, first.is_cached, first.cpu_seconds) == (1.0, False, 1.5)
    again = ask(process, "b", [{**ROW, "row": "another name"}], lr=1e-4)
    assert (again.is_cached, len(process.asked)) == (True, 1)
    assert again.steps == first.steps


@pytest.mark.parametrize(
    ("loss", "close", "times"), [(1.0, 1, 1), (1.1, 0, 1), (1.1, 1, 2), (float("nan"), 1, 2)]
)
def test_a_trainer_that_is_off_where_a_pick_is_close_is_asked_about_with_its_own_figures(
    ask: Callable[..., Any], loss: float, close: int, times: int
) -> None:
    process = Oracle(close=close)
    ask(process, "a", [ROW])
    ask(process, "b", [ROW], loss=loss)
    assert len(process.asked) == times
    assert all("--reported" in argv for argv in process.asked)


def test_an_answer_with_a_turned_pick_is_kept_for_a_trainer_with_the_same_figures(
    ask: Callable[..., Any],
) -> None:
    process = Oracle(close=1, turned=1)
    ask(process, "a", [ROW], loss=1.1)
    assert ask(process, "b", [ROW], loss=1.1).is_cached
    assert not ask(process, "c", [ROW], loss=1.2).is_cached
    assert len(process.asked) == 2


@pytest.mark.parametrize(
    ("row", "settings"), [(ROW, {"lr": 2e-4}), (ROW | {"labels": [-100, -100]}, {"lr": 1e-4})]
)
def test_other_settings_or_batches_are_another_question(
    ask: Callable[..., Any], row: dict[str, Any], settings: dict[str, Any]
) -> None:
    process = Oracle()
    ask(process, "a", [ROW], lr=1e-4)
    assert not ask(process, "b", [row], **settings).is_cached
    assert len(process.asked) == 2


def test_a_damaged_answer_is_asked_for_again(ask: Callable[..., Any], tmp_path: Path) -> None:
    process = Oracle()
    ask(process, "a", [ROW])
    (kept,) = (tmp_path / "cache" / consult.FOLDER).glob("*.json")
    kept.write_text('{"steps": [', encoding="utf-8")
    assert not ask(process, "b", [ROW]).is_cached
    assert len(process.asked) == 2


def test_an_oracle_that_fails_is_not_kept_and_says_why(ask: Callable[..., Any]) -> None:
    process = Oracle(exit_code=1)
    for case in ("a", "b"):
        answer = ask(process, case, [ROW])
        assert answer.reason == "the oracle failed (out of memory); see oracle/launcher.log"
    assert len(process.asked) == 2


def test_batches_that_are_none_speak_against_the_trainer(ask: Callable[..., Any]) -> None:
    answer = ask(Oracle(), "a", [ROW | {"labels": [6]}])
    assert answer.is_wrong
    assert "lengths differ" in answer.reason


def test_without_batches_nobody_is_asked(ask: Callable[..., Any]) -> None:
    process = Oracle()
    answer = ask(process, "a", None)
    assert answer.reason == "the trainer shows no batches; it may call sweep_taps.batch"
    assert process.asked == []


def test_each_adapter_says_its_trainers_definitions() -> None:
    def definitions(*overrides: str) -> dict[str, Any] | None:
        asked = ["arch=llama", "layout=single", "optim.weight_decay=0.1", *overrides]
        settings = settings_of(composed(asked), Machine())
        return adapter_of(settings).oracle(settings)

    ours = definitions("trainer=sft")
    assert ours is not None
    assert (ours["decay"], ours["weight_decay"], ours["max_length"]) == ("matrices", 0.1, 512)
    assert Path(ours["source"]).is_file()
    theirs = definitions("trainer=hf_trainer")
    assert theirs is not None
    assert (theirs["warmup"], theirs["decay"]) == ("from_zero", "no_norms_no_biases")
    assert definitions(*COMMAND) is None
    told = definitions(*COMMAND, "+trainer.oracle.decay=all")
    assert told is not None
    assert (told["decay"], told["lr"]) == ("all", 1e-4)
