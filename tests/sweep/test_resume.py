"""A resume that lost something fails, and says what, where and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sweep.checks import Finding, Outcome, resume
from sweep.checks.base import Context
from sweep.errors import RequestError
from sweep.facts import Facts, Step
from tests.sweep.confs import limits

Make = Callable[..., Facts]


def step(number: int, **changes: Any) -> Step:
    values = {
        "step": number, "loss": 3 - 0.1 * number + 1e-9, "grad_norm": 1.0 / number, "lr": 1e-4,
        "batch_digests": [f"rank0-{number}", f"rank1-{number}"], "rng_digests": [f"r{number}"],
        "buffers_digest": "b", "gradient_digests": [f"g0-{number}", f"g1-{number}"],
    }  # fmt: skip
    return Step.model_validate(values | changes)


WHOLE = [step(n) for n in range(1, 9)]
AFTER = WHOLE[5:]


def checked(make_facts: Make, *resumed: list[Step] | None, at: tuple[int, ...] = (5,)) -> Finding:
    asked = {"cp": 1, "ep": 1, "resume_at": list(at)}
    facts = make_facts(WHOLE).model_copy(update={"asked": asked})
    for number, steps in enumerate(resumed, start=2):
        if steps is not None:
            directory = f"launches/{number}_resume"
            first = {"first_step": at[number - 2] + 1, "last_step": 8}
            launch = make_facts(steps, name="resume", directory=directory, **first).launches
            facts.launches += launch
    finding = resume.check(facts, Context())
    assert finding is not None
    return finding


def changed(at: int, **changes: Any) -> list[Step]:
    return [step(s.step, **changes) if s.step == at else s for s in AFTER]


def test_an_equal_continuation_passes_with_a_delta_of_zero(make_facts: Make) -> None:
    finding = checked(make_facts, AFTER)
    assert finding.outcome is Outcome.PASS
    assert not finding.message
    assert finding.metrics == {
        "resume/loss_delta_max": 0.0,
        "resume/grad_norm_delta_max": 0.0,
        "resume/inexact_steps": 0.0,
    }


def test_a_run_that_was_resumed_twice_is_compared_twice(make_facts: Make) -> None:
    from_3 = WHOLE[3:]
    assert checked(make_facts, from_3, AFTER, at=(3, 5)).outcome is Outcome.PASS
    finding = checked(make_facts, from_3, changed(7, loss=2.4), at=(3, 5))
    assert finding.outcome is Outcome.FAIL
    assert finding.folder == "launches/3_resume"
    assert finding.metrics["resume/loss_delta_max"] == pytest.approx(0.1)
    assert checked(make_facts, from_3, at=(3, 5)).outcome is Outcome.INCONCLUSIVE


def test_a_case_that_does_not_resume_has_no_such_finding(make_facts: Make) -> None:
    assert resume.check(make_facts(), Context()) is None


def test_a_loss_that_differs_at_the_last_step_alone_fails(make_facts: Make) -> None:
    finding = checked(make_facts, changed(8, loss=2.2014))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith(
        "step 8: loss is 2.2014 resumed, 2.2 in the uninterrupted run: off by 1.40e-03 (relative"
        " 6.36e-04); at most 1.40e-03 at step 8, +4.67e-04 on average; threshold"
    )
    assert finding.metrics["resume/loss_delta_max"] == pytest.approx(1.4e-3)
    assert finding.folder == "launches/2_resume"


def test_a_gradient_norm_that_differs_fails_where_the_loss_agrees(make_facts: Make) -> None:
    finding = checked(make_facts, changed(7, grad_norm=0.2))
    assert finding.outcome is Outcome.FAIL
    assert "step 7: grad_norm is 0.2 resumed" in finding.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lr": 2e-4}, "the learning rate is 0.0002 resumed, 0.0001 in"),
        ({"batch_digests": ["rank0-6", "rank1-1"]}, "the batch is"),
        ({"rng_digests": ["other"]}, "the random stream is"),
        ({"buffers_digest": "lost"}, "the untrained buffers is"),
    ],
)
def test_what_must_be_equal_fails_where_losses_agree(
    make_facts: Make, change: dict[str, Any], said: str
) -> None:
    finding = checked(make_facts, changed(6, **change))
    assert finding.outcome is Outcome.FAIL
    assert f"step 6: {said}" in finding.message


def test_a_gradient_that_differs_by_a_bit_on_one_rank_fails_where_all_else_agrees(
    make_facts: Make,
) -> None:
    after = changed(7, gradient_digests=["g0-7", "another"])
    finding = judged(resumed_facts(make_facts, after, trainer="sft"))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("step 7: the gradient is another in its last bits")
    assert "(rank 1)" in finding.message
    assert finding.metrics["resume/inexact_steps"] == 1
    own = judged(resumed_facts(make_facts, after))
    assert own.outcome is Outcome.PASS, "nobody has seen that resumes of this trainer are exact"


def test_where_resumes_are_exact_a_repeat_of_the_whole_run_has_to_be(make_facts: Make) -> None:
    facts = resumed_facts(make_facts, AFTER, trainer="sft")
    again = [one.model_copy() for one in WHOLE]
    again[1].gradient_digests = ["g0-2", "another"]
    facts.launches += make_facts(again, name="train_again", repeats="train").launches
    finding = judged(facts)
    assert finding.outcome is Outcome.FAIL
    assert "step 2: the gradient is another in its last bits when repeated" in finding.message


def test_where_resumes_are_exact_one_unit_in_the_last_place_fails(make_facts: Make) -> None:
    after = changed(7, loss=WHOLE[6].loss + 2.4e-7)
    finding = judged(resumed_facts(make_facts, after, trainer="sft"))
    assert finding.outcome is Outcome.FAIL
    assert "resumes of sft on cpu are exact" in finding.message
    assert judged(resumed_facts(make_facts, after, trainer="sft", device="cuda")).outcome is (
        Outcome.PASS
    )


def test_what_explains_more_than_other_bits_is_said_first(make_facts: Make) -> None:
    finding = checked(make_facts, changed(7, gradient_digests=["x", "y"], loss=1.0))
    assert finding.message.startswith("step 7: loss is 1 resumed")


def test_other_bits_are_counted_and_no_failure_on_a_device_that_adds_up_in_any_order(
    make_facts: Make,
) -> None:
    facts = resumed_facts(make_facts, changed(7, gradient_digests=["x", "y"]), device="cuda",
                          dtype="bfloat16")  # fmt: skip
    finding = resume.check(facts, Context())
    assert finding is not None
    assert finding.outcome is Outcome.PASS
    assert finding.metrics["resume/inexact_steps"] == 1


def test_what_a_trainer_does_not_report_is_told(make_facts: Make) -> None:
    silent = {"lr": None, "batch_digests": [], "rng_digests": [], "gradient_digests": []}
    whole = [step(n, **silent) for n in range(1, 9)]
    facts = make_facts(whole)
    facts.launches += make_facts(whole[5:], name="resume").launches
    facts.asked = {"resume_at": [5]}
    finding = resume.check(facts, Context())
    assert finding is not None
    assert finding.outcome is Outcome.PASS
    assert finding.message == (
        "not compared, since it is not reported: learning rate, batch, random stream,"
        " gradient_digests"
    )
    assert "resume/inexact_steps" not in finding.metrics


def test_a_loss_that_is_no_number_is_far_from_everything(make_facts: Make) -> None:
    assert checked(make_facts, changed(7, loss=math.nan)).outcome is Outcome.FAIL


@pytest.mark.parametrize("resumed", [None, [], AFTER[:1]])
def test_too_little_to_compare_is_inconclusive(
    make_facts: Make, resumed: list[Step] | None
) -> None:
    assert checked(make_facts, resumed).outcome is Outcome.INCONCLUSIVE


def judged(facts: Facts) -> Finding:
    finding = resume.check(facts, Context())
    assert finding is not None
    return finding


def resumed_facts(make_facts: Make, after: list[Step], **labels: str) -> Facts:
    facts = make_facts(WHOLE)
    facts.launches += make_facts(after, name="resume").launches
    facts.asked = {"resume_at": [5]}
    facts.case = facts.case.model_copy(update=labels)
    return facts


def test_what_must_be_equal_fails_without_any_threshold_too(make_facts: Make) -> None:
    finding = resume.check(
        resumed_facts(make_facts, changed(6, lr=1.0), dtype="float16"), Context()
    )
    assert finding is not None
    assert finding.outcome is Outcome.FAIL
    assert finding.margin is None


def test_without_a_threshold_of_its_dtype_a_resume_is_no_pass_and_no_crash(
    make_facts: Make,
) -> None:
    facts = resumed_facts(make_facts, AFTER, dtype="float16")
    finding = resume.check(facts, Context())
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "conf/thresholds.yaml has no resume.loss.cpu.float16" in finding.message


def test_a_missing_threshold_names_the_key_to_add() -> None:
    with pytest.raises(RequestError, match=r"no resume\.loss\.tpu\.float32; add it"):
        limits().of("resume", "loss", "tpu", "float32")


def test_every_threshold_says_where_it_comes_from() -> None:
    found = limits().of("resume", "loss", "cpu", "float32")
    assert found.value > 0
    assert found.source


def test_a_run_that_began_anew_did_not_go_on(make_facts: Make) -> None:
    finding = checked(make_facts, WHOLE)
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("resume: began at step 1, not 6: it did not go on")
