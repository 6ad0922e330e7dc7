"""A resume is held against what whole runs of its own case differ by."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sweep.checks import Finding, Outcome, resume
from sweep.checks.base import Context
from sweep.facts import Facts, Step
from tests.sweep.confs import limits

Make = Callable[..., Facts]
LOSSES = {6: 7.744050503, 7: 7.673468113, 8: 7.534190655}
ULP = 2.0**-21  # of float32 between 4 and 8


def steps(loss: float = 0.0, norm: float = 0.0, digits: int = 12, buffers: str = "") -> list[Step]:
    """Steps 6 to 8, whose last figures are off by that much."""
    off = {8: (loss, norm)}
    return [
        Step(
            step=n,
            loss=round(LOSSES[n] + off.get(n, (0, 0))[0], digits),
            grad_norm=round(2.339244712 + off.get(n, (0, 0))[1], digits),
            buffers_digest=buffers or None,
        )
        for n in LOSSES
    ]


def judged(
    make_facts: Make,
    resumed: list[list[Step]],
    *repeats: list[Step],
    whole: list[Step],
    **labels: str,
) -> Finding:  # fmt: skip
    """The finding of a whole run, one that resumed it, and the repeats of both."""
    facts = make_facts(whole)
    facts.case = facts.case.model_copy(update=labels)
    facts.asked = {"resume_at": [5]}
    for number, after in enumerate(resumed):
        again = {"name": "resume_again", "repeats": "resume"} if number else {"name": "resume"}
        facts.launches += make_facts(after, first_step=6, last_step=8, **again).launches
    for again in repeats:
        facts.launches += make_facts(again, name="train_again", repeats="train").launches
    finding = resume.check(facts, Context())
    assert finding is not None
    return finding


@pytest.mark.parametrize(
    ("loss", "norm", "outcome"),
    [(0.0, 0.0, Outcome.PASS), (9.5e-7, 9.5e-7, Outcome.PASS),  # correct
     (1.9e-6, 0.0, Outcome.FAIL), (0.0, 2.9e-6, Outcome.FAIL)],  # a lost decay of 0.01
)  # fmt: skip
@pytest.mark.parametrize("labels", [{}, {"dtype": "float16", "device": "tpu"}])
def test_where_whole_runs_are_equal_a_lost_decay_is_found_without_any_calibration(
    make_facts: Make, loss: float, norm: float, outcome: Outcome, labels: dict[str, str]
) -> None:
    finding = judged(make_facts, [steps(loss, norm)], steps(), whole=steps(), **labels)
    assert finding.outcome is outcome
    assert finding.metrics["resume/loss_noise"] == 0.0
    if outcome is Outcome.FAIL:
        assert "measured: whole runs are equal; the last digits pass" in finding.message


@pytest.mark.parametrize(("off", "outcome"), [(2.5e-5, Outcome.PASS), (3.5e-5, Outcome.FAIL)])
def test_where_whole_runs_differ_a_resume_may_by_a_multiple(
    make_facts: Make, off: float, outcome: Outcome
) -> None:
    wholes = steps(1e-5), steps(-4e-7)
    finding = judged(make_facts, [steps(-off)], *wholes, whole=steps())
    assert finding.metrics["resume/loss_noise"] == pytest.approx(1.04e-5)
    assert finding.outcome is outcome
    if outcome is Outcome.FAIL:
        assert "3 times what whole runs differ by, 1.0e-05" in finding.message
        assert finding.margin == pytest.approx(3.46e-5 / 3.12e-5, rel=1e-3)


def test_of_several_runs_the_nearest_two_count(make_facts: Make) -> None:
    finding = judged(make_facts, [steps(7e-5), steps(7.1e-5)], steps(7e-5), whole=steps(5e-5))
    assert finding.outcome is Outcome.PASS
    assert finding.metrics["resume/loss_delta_max"] == 0.0


def test_a_calibrated_threshold_is_the_upper_bound(make_facts: Make) -> None:
    limit = limits().of("resume", "loss", "cpu", "float32")
    finding = judged(make_facts, [steps(1e-4)], steps(-1e-4), whole=steps())
    assert finding.outcome is Outcome.FAIL
    assert limit.source in finding.message


def test_without_a_repeat_the_calibrated_threshold_holds(make_facts: Make) -> None:
    assert judged(make_facts, [steps(1.9e-6)], whole=steps()).outcome is Outcome.PASS
    unknown = judged(make_facts, [steps()], whole=steps(), dtype="float16")
    assert unknown.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("off", "outcome"), [(1e-4, Outcome.PASS), (2e-4, Outcome.FAIL)])
def test_a_log_of_few_digits_is_reported_and_its_last_digit_passes(
    make_facts: Make, off: float, outcome: Outcome
) -> None:
    whole = steps(digits=4)
    finding = judged(make_facts, [steps(off, digits=4)], whole, whole=whole, dtype="float16")
    assert finding.outcome is outcome
    if outcome is Outcome.PASS:
        assert "loss is written in steps of 1e-04, grad_norm is written in" in finding.message
        assert "let the trainer write more digits" in finding.message


def test_buffers_that_differ_between_whole_runs_need_not_be_equal(make_facts: Make) -> None:
    resumed, other = [steps(buffers="a")], steps(buffers="b")
    assert judged(make_facts, resumed, other, whole=other).outcome is Outcome.FAIL
    third = steps(buffers="c")
    assert judged(make_facts, resumed, third, whole=other).outcome is Outcome.PASS


def test_a_repeat_of_a_resume_that_went_wrong_is_seen(make_facts: Make) -> None:
    other = [step.model_copy(update={"lr": 1.0}) for step in steps()]
    finding = judged(make_facts, [steps(), other], steps(), whole=steps())
    assert finding.outcome is Outcome.FAIL
    assert "the learning rate is 1.0 resumed" in finding.message
