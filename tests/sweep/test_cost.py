"""What a case takes is reported beside the baseline, and fails only by a limit that is set."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from sweep.checks import Context, Finding, Outcome, cost, thresholds
from sweep.checks.thresholds import Threshold
from sweep.facts import Facts, Step
from tests.sweep.confs import limits
from tests.sweep.conftest import CASE

Make = Callable[..., Facts]
SECONDS = (30.0, 4.0, 1.0, 1.2, 1.1)
LEVEL = (1.0, 1.5, 1.5, 1.5, 1.5)


@pytest.fixture
def taken(make_facts: Make) -> Callable[..., Facts]:
    """A case that takes these seconds and GiB at its steps."""

    def make(
        seconds: Sequence[float] = SECONDS, memory: Sequence[float | None] = LEVEL, **launch: object
    ) -> Facts:
        return make_facts(
            [
                Step(step=n, loss=1.0, grad_norm=1.0, step_seconds=took, peak_memory_gib=peak)
                for n, (took, peak) in enumerate(zip(seconds, memory, strict=True), start=1)
            ],
            first_step_seconds=20.0,
            **launch,
        )

    return make


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of twice the baseline on everything that may have one."""
    limit = {"cpu": {"float32": Threshold(value=2.0, source="a test")}}
    figures = {one.name: limit for one in cost.FIGURES}
    table = limits().model_copy(update={"thresholds": {"cost": figures}})
    monkeypatch.setattr(thresholds, "table", lambda _: table)


def checked(facts: Facts, before: Facts | None = None) -> Finding:
    finding = cost.check(facts, Context(last_good={CASE.id: before} if before else {}))
    assert finding is not None
    return finding


def test_figures_leave_out_the_first_steps_and_need_no_baseline(taken: Make) -> None:
    finding = checked(taken())
    assert (finding.outcome, finding.message) == (Outcome.PASS, "")
    assert finding.metrics == {
        "cost/step_seconds": 1.1,
        "cost/first_step_seconds": 20.0,
        "cost/peak_memory_gib": 1.5,
        "cost/memory_growth": 0.0,
    }


def test_ratios_are_to_the_baseline(taken: Make) -> None:
    metrics = checked(taken([2 * took for took in SECONDS]), taken()).metrics
    assert metrics["cost/step_seconds_ratio"] == pytest.approx(2.0)
    assert metrics["cost/first_step_seconds_ratio"] == 1.0
    assert metrics["cost/peak_memory_gib_ratio"] == 1.0


@pytest.mark.parametrize(("factor", "said"), [(5, "5.00 times"), (0.2, "0.20 times")])
def test_without_a_limit_a_step_far_slower_or_faster_is_told_and_fails_nothing(
    taken: Make, factor: float, said: str
) -> None:
    finding = checked(taken([factor * took for took in SECONDS]), taken())
    assert finding.outcome is Outcome.PASS
    assert f"in the last good sweep 20260101-000000: {said}" in finding.message


@pytest.mark.usefixtures("limited")
def test_with_a_limit_a_slow_step_fails_and_says_all_of_it(taken: Make) -> None:
    finding = checked(taken([5 * took for took in SECONDS]), taken())
    assert finding.outcome is Outcome.FAIL
    assert finding.message == (
        "the time of a step is 5.5 s, 1.1 s in the last good sweep 20260101-000000: 5.00 times;"
        " limit 2 times (a test); moved: nothing"
    )
    assert finding.folder == "launches/1_train"


@pytest.mark.usefixtures("limited")
def test_one_slow_step_is_no_slow_case(taken: Make) -> None:
    assert checked(taken([30.0, 4.0, 1.0, 9.0, 1.1]), taken()).outcome is Outcome.PASS


@pytest.mark.usefixtures("limited")
def test_a_limit_without_a_baseline_fails_nothing(taken: Make) -> None:
    finding = checked(taken([5 * took for took in SECONDS]))
    assert finding.outcome is Outcome.PASS
    assert not [name for name in finding.metrics if name.endswith("_ratio")]


def test_memory_that_grows_at_every_step_fails_without_a_baseline(taken: Make) -> None:
    finding = checked(taken(memory=[1.0, 1.5, 1.6, 1.7, 1.8]))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith(
        "steps 2 to 5: the memory of the worst rank grows by 5.6% of its peak a step,"
        " from 1.500 to 1.800 GiB; limit 3.0%"
    )


def test_what_a_profiler_takes_is_no_leak(taken: Make) -> None:
    facts = taken(memory=[1.0, 1.5, 1.6, 1.7, 1.8])
    facts.steps[2].operators = {"aten::mm": 1}
    assert checked(facts).outcome is Outcome.PASS
    assert "cost/memory_growth" not in checked(facts).metrics


def test_a_peak_that_rises_once_is_no_leak(taken: Make) -> None:
    assert checked(taken(memory=[1.0, 1.5, 1.5, 1.9, 1.9])).outcome is Outcome.PASS


def test_an_allocator_that_still_settles_is_no_leak(taken: Make) -> None:
    """Four ranks of deepseek_v4 on a busy CI machine: 8% of the peak in three steps, unevenly."""
    assert checked(taken(memory=[0.5, 0.626, 0.649, 0.671, 0.677])).outcome is Outcome.PASS


def test_too_few_steps_say_nothing_of_growth(taken: Make) -> None:
    short = taken(SECONDS[:4], [1.0, 1.5, 1.8, 2.1])
    assert "cost/memory_growth" not in checked(short).metrics


def test_a_trainer_that_reports_no_cost_has_no_such_finding(make_facts: Make) -> None:
    assert cost.check(make_facts(), Context()) is None
    assert cost.check(make_facts([]), Context()) is None


def test_more_work_in_a_step_fails_where_a_limit_is_set(taken: Make) -> None:
    before, after = taken(), taken()
    for facts, work in ((before, 1.0), (after, 2.1)):
        for step in facts.steps:
            step.step_cpu_seconds = work
    finding = checked(after, before)
    assert finding.outcome is Outcome.FAIL
    assert "the work of a step is 2.1 CPU s, 1 CPU s in" in finding.message
    assert finding.margin == pytest.approx(1.05)


def test_more_operators_than_before_fail_and_are_named(taken: Make) -> None:
    before, after = taken(), taken()
    before.steps[2].operators = {"aten::mm": 100, "aten::add": 100}
    after.steps[2].operators = {"aten::mm": 140, "aten::add": 100, "aten::bmm": 4}
    finding = checked(after, before)
    assert finding.outcome is Outcome.FAIL
    assert "the count of operators in a step is 244 operators, 200 operators" in finding.message
    assert "1.22 times (aten::mm 140, not 100; aten::bmm 4, not 0); limit 1.02" in finding.message
    assert finding.margin == pytest.approx(1.22 / 1.02)
    after.steps[2].operators = {"aten::mm": 102, "aten::add": 100}
    assert checked(after, before).outcome is Outcome.PASS
    after.steps[2].operators = {}
    assert "cost/operators_ratio" not in checked(after, before).metrics


def test_steps_that_other_programs_lengthened_are_no_more_work(taken: Make) -> None:
    before, after = taken(), taken()
    for facts, works in ((before, [1.0] * 5), (after, [1.0, 1.0, 3.0, 1.2, 3.0])):
        for step, work in zip(facts.steps, works, strict=True):
            step.step_cpu_seconds = work
    assert checked(after, before).metrics["cost/step_cpu_seconds_ratio"] == pytest.approx(1.2)


def test_a_planted_fault_is_held_against_the_same_case_without_it(taken: Make) -> None:
    clean, faulty = taken(), taken([5 * took for took in SECONDS])
    clean.case = CASE
    label = {"fault": "slow_step", "id": f"{CASE.id}-fault_slow_step"}
    faulty.case = CASE.model_copy(update=label)
    finding = cost.check(faulty, Context(sweep={CASE.id: clean}))
    assert finding is not None
    assert finding.metrics["cost/step_seconds_ratio"] == pytest.approx(5.0)


def test_one_step_in_four_that_takes_more_memory_is_no_leak(taken: Make) -> None:
    memory = [1, 1, 1.1, 1.1, 1.1, 1.1, 1.2, 1.2, 1.2]
    assert cost.settled_growth(taken([1.0] * 9, memory)) == 0


def test_a_small_leak_shows_once_memory_has_settled(taken: Make) -> None:
    memory = [1.0, 1.3, *(1.3 + 0.02 * n for n in range(8))]
    finding = checked(taken([1.0] * 10, memory))
    assert finding.outcome is Outcome.FAIL
    assert finding.metrics["cost/memory_growth"] < 0.03
    assert finding.margin == pytest.approx(finding.metrics["cost/settled_growth"] / 0.0047)
    assert "grows by 1.4% of its peak a step" in finding.message
    assert checked(taken([1.0] * 4, memory[:4])).outcome is Outcome.PASS, "too few steps to say"


def test_another_kind_of_device_is_no_baseline(taken: Make) -> None:
    before = taken()
    before.case = CASE.model_copy(update={"device": "cuda"})
    finding = checked(taken([9 * took for took in SECONDS]), before)
    assert finding.outcome is Outcome.PASS
    assert not [name for name in finding.metrics if name.endswith("_ratio")]
