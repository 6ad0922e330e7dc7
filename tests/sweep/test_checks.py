from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from sweep.checks import CHECKS, Context, Finding, Outcome
from sweep.facts import Facts, Metrics, Step
from sweep.judge import Verdict, judge

Make = Callable[..., Facts]


def found(name: str, facts: Facts) -> Finding:
    finding = CHECKS[name](facts, Context())
    assert finding is not None
    return finding


def steps(*changes: dict[str, object]) -> list[Step]:
    good = {"grad_norm": 1.0, "params_moved": 1.0}
    return [
        Step.model_validate({"step": n, "loss": 3 - 0.1 * n, **good, **change})
        for n, change in enumerate(changes, start=1)
    ]


def test_a_good_case_passes_every_check(make_facts: Make) -> None:
    judgement = judge(make_facts(), Context())
    assert {finding.outcome for finding in judgement.findings} == {Outcome.PASS}
    assert judgement.verdict is Verdict.PASSED
    assert judgement.worst is None


def test_an_exit_code_is_a_crash_that_names_the_rank_and_the_last_step(make_facts: Make) -> None:
    facts = make_facts(exit_code=42, failed_rank=2, failure="RuntimeError: no")
    judgement = judge(facts, Context())
    assert judgement.verdict is Verdict.CRASHED
    assert judgement.worst is not None
    assert judgement.worst.message == (
        "train: exit code 42 after step 5; rank 2 failed first: RuntimeError: no"
    )
    assert judgement.worst.folder == "launches/1_train"


def test_a_signal_is_named(make_facts: Make) -> None:
    message = found("exit", make_facts([], exit_code=-9)).message
    assert message == "train: killed by SIGKILL before its first step"


def test_a_time_out_is_no_crash(make_facts: Make) -> None:
    judgement = judge(make_facts(timed_out=True, exit_code=-6, limit_seconds=30.0), Context())
    assert judgement.verdict is Verdict.TIMED_OUT
    assert judgement.worst is not None
    assert "limit of 30 s, after step 5" in judgement.worst.message


def test_a_case_that_could_not_be_launched_is_a_crash_with_the_reason(make_facts: Make) -> None:
    facts = make_facts().model_copy(update={"launches": [], "error": "TinyModelError: no disk"})
    judgement = judge(facts, Context())
    assert judgement.verdict is Verdict.CRASHED
    assert judgement.worst is not None
    assert judgement.worst.message == "TinyModelError: no disk"


def test_a_job_that_died_is_a_crash_even_with_all_steps(make_facts: Make) -> None:
    facts = make_facts(exit_code=None).model_copy(update={"error": "the job died"})
    assert judge(facts, Context()).verdict is Verdict.CRASHED


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_figure_that_is_not_finite_fails_at_its_step(
    make_facts: Make, name: str, value: float
) -> None:
    finding = found("finite", make_facts(steps({}, {}, {name: value}, {}, {})))
    assert finding.outcome is Outcome.FAIL
    assert finding.message == f"train: {name} is {value} at step 3"
    assert finding.metrics == {"loss/finite": 0.0}


def test_missing_steps_fail_although_the_trainer_exits_0(make_facts: Make) -> None:
    finding = found("finite", make_facts(steps({}, {}, {})))
    assert finding.outcome is Outcome.FAIL
    assert "expected 5 losses at steps 1 to 5, got 3 (missing: 4, 5)" in finding.message


def test_a_step_reported_twice_and_one_not_asked_for_fail(make_facts: Make) -> None:
    message = found("finite", make_facts(steps({}, {}, {}, {}, {}, {}, {"step": 3}))).message
    assert "more than once: 3" in message
    assert "not asked for: 6" in message


def test_an_unreadable_line_fails(make_facts: Make) -> None:
    bad = Metrics(bad_lines=["line 3: Invalid JSON: boom"])
    assert "unreadable metrics, line 3" in found("finite", make_facts(metrics=bad)).message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([{}, {"grad_norm": 0.0}], "grad_norm is 0.0 at step 2"),
        ([{"grad_norm": math.nan}, {}], "grad_norm is nan at step 1"),
        ([{}, {}, {"params_moved": 0.0}], "no parameter moved at step 3"),
        ([{}, {"params_moved": math.nan}], "params_moved is nan at step 2"),
        ([{}, {"params_moved": 1.5}], "params_moved is 1.5 at step 2"),
        (
            [{}, {"params_without_gradient": ["conv1d.bias", "b"]}],
            "trained tensors have no gradient at step 2: conv1d.bias, b",
        ),
        ([{"loss": 2.5}, {"loss": 2.4}, {"loss": 2.4}], "2.4 at step 2 and at step 3"),
        ([{"loss": math.log(1000) + n * 1e-6} for n in range(5)], "stays at ln(1000)"),
    ],
)
def test_a_model_that_does_not_train_fails(
    make_facts: Make, changes: list[dict[str, object]], said: str
) -> None:
    finding = found("alive", make_facts(steps(*changes)))
    assert finding.outcome is Outcome.FAIL
    assert said in finding.message


def test_without_params_moved_nobody_can_say_that_it_trains(make_facts: Make) -> None:
    facts = make_facts(steps({"params_moved": None}, {"params_moved": None}))
    finding = found("alive", facts)
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, False)


def test_a_trainer_that_declares_that_it_does_not_tell_is_shown_and_not_failed(
    make_facts: Make,
) -> None:
    facts = make_facts(steps({"params_moved": None}, {"params_moved": None}))
    facts.asked["not_shown"] = ["params_moved"]
    finding = found("alive", facts)
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, True)
    facts.launches[0].metrics.steps[1].grad_norm = 0.0
    assert found("alive", facts).outcome is Outcome.FAIL


def test_a_gradient_norm_that_is_missing_fails_unless_it_was_declared(make_facts: Make) -> None:
    facts = make_facts(steps({}, {"grad_norm": None}, {}, {}, {}))
    finding = found("finite", facts)
    assert finding.outcome is Outcome.FAIL
    assert "no grad_norm at step 2; a trainer that has none declares" in finding.message
    facts.asked["not_shown"] = ["grad_norm"]
    assert judge(facts, Context()).verdict is Verdict.PASSED


def test_inconclusive_is_no_pass(make_facts: Make) -> None:
    one = steps({})
    verdict = judge(make_facts(one, last_step=1), Context()).verdict
    assert verdict is Verdict.INCONCLUSIVE
    assert not verdict.good


def test_no_check_passes_on_nothing(make_facts: Make) -> None:
    facts = make_facts().model_copy(update={"launches": []})
    assert Outcome.PASS not in {finding.outcome for finding in judge(facts, Context()).findings}


def test_a_tensor_that_does_not_move_fails_in_float32_alone(make_facts: Make) -> None:
    still = {"params_moved": 0.96, "params_unmoved": ["model.norm.weight", "lm_head.weight"]}
    facts = make_facts(steps(*(still for _ in range(5))))
    finding = found("alive", facts)
    assert finding.outcome is Outcome.FAIL
    assert (
        "4.0% of the trained tensors did not move at step 1 (model.norm.weight, lm_head.weight)"
        in finding.message
    )
    facts.case = facts.case.model_copy(update={"dtype": "bfloat16"})
    assert found("alive", facts).outcome is Outcome.PASS
