"""A resume that lost something fails, and says what, where and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sweep import thresholds
from sweep.checks import Finding, Outcome, resume
from sweep.checks.base import Context
from sweep.errors import RequestError
from sweep.facts import Facts, Step

Make = Callable[..., Facts]


def step(number: int, **changes: Any) -> Step:
    values = {
        "step": number, "loss": 3 - 0.1 * number, "grad_norm": 1.0 / number, "lr": 1e-4,
        "batch_digests": [f"rank0-{number}", f"rank1-{number}"], "rng_digests": [f"r{number}"],
        "buffers_digest": "b",
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
    assert finding.metrics == {"resume/loss_delta_max": 0.0, "resume/grad_norm_delta_max": 0.0}


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


def test_a_loss_that_is_no_number_is_far_from_everything(make_facts: Make) -> None:
    assert checked(make_facts, changed(7, loss=math.nan)).outcome is Outcome.FAIL


@pytest.mark.parametrize("resumed", [None, [], AFTER[:1]])
def test_too_little_to_compare_is_inconclusive(
    make_facts: Make, resumed: list[Step] | None
) -> None:
    assert checked(make_facts, resumed).outcome is Outcome.INCONCLUSIVE


def test_without_a_threshold_of_its_dtype_a_resume_is_no_pass_and_no_crash(
    make_facts: Make,
) -> None:
    facts = make_facts(WHOLE)
    facts.launches += make_facts(AFTER, name="resume").launches
    facts.asked = {"resume_at": [5]}
    facts.case = facts.case.model_copy(update={"dtype": "bfloat16"})
    finding = resume.check(facts, Context())
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "conf/thresholds.yaml has no resume.loss.cpu.bfloat16" in finding.message


def test_a_missing_threshold_names_the_key_to_add() -> None:
    with pytest.raises(RequestError, match=r"no resume\.loss\.tpu\.float32; add it"):
        thresholds.of("resume", "loss", "tpu", "float32")


def test_every_threshold_says_where_it_comes_from() -> None:
    found = thresholds.of("resume", "loss", "cpu", "float32")
    assert found.value > 0
    assert found.source


def test_a_run_that_began_anew_did_not_go_on(make_facts: Make) -> None:
    finding = checked(make_facts, WHOLE)
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("resume: began at step 1, not 6: it did not go on")
