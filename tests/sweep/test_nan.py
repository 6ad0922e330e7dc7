"""NaN is neither above a limit nor below: no check lets it through."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweep.checks import Context, Outcome, cost, exercised, finite, graph_breaks
from sweep.checks.baselines import Baseline
from sweep.checks.differences import Point
from sweep.checks.thresholds import Table, Threshold
from sweep.facts import Facts, Step
from sweep.report import Result
from tests.sweep.test_exercised import GOOD, ON, facts_with

Make = Callable[..., Facts]
FIGURES: dict[str, dict[str, Any]] = {
    "loss": {"loss": math.nan},
    "grad_norm": {"grad_norm": math.nan},
    "aux_loss": {"aux_loss": math.nan},
    "lr": {"lr": math.inf},
    "clip_coefficient": {"clip_coefficient": math.nan},
    "grad_norm_clipped": {"grad_norm_clipped": math.inf},
    "grad_norm of experts": {"grad_norm_groups": {"experts": math.nan}},
    "choices_by_place": {"choices_by_place": [1.0, math.nan]},
    "choices_fingerprint": {"counters": {"choices_fingerprint": math.nan}},
    "cp_sequence_share": {"counters": {"cp_sequence_share": [0.5, math.nan]}},
}


def steps(**third: Any) -> list[Step]:
    good = {"loss": 2.0, "grad_norm": 1.0, "lr": 1e-4, "params_moved": 1.0}
    changed = {3: third}
    return [
        Step.model_validate({**good, "step": n, "loss": 3 - n / 10, **changed.get(n, {})})
        for n in range(1, 6)
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_that_is_not_finite_fails(make_facts: Make, name: str) -> None:
    assert finite.check(make_facts(steps()), Context()).outcome is Outcome.PASS
    finding = finite.check(make_facts(steps(**FIGURES[name])), Context())
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith(f"train: {name} is ")
    assert finding.message.endswith(" at step 3")


@pytest.mark.parametrize("pair", [(1.0, math.nan), (math.nan, 1.0), (1.0, math.inf),
                                  (math.inf, math.inf), (math.nan, math.nan)])  # fmt: skip
def test_a_difference_that_is_none_is_farther_than_any(pair: tuple[float, float]) -> None:
    point = Point(1, *pair)
    assert point.signed == point.relative == math.inf


@pytest.mark.parametrize("values", [[math.nan] * 5, [1.0, 1.0, math.nan, math.nan, math.nan]])
def test_a_time_that_is_nan_is_within_no_limit(make_facts: Make, values: list[float]) -> None:
    limit = Threshold(value=2.0, source="a test")
    table = Table(thresholds={"cost": {"step_seconds": {"cpu": {"float32": limit}}}})

    def timed(taken: list[float]) -> Facts:
        return make_facts(
            [
                one.model_copy(update={"step_seconds": seconds})
                for one, seconds in zip(steps(), taken, strict=True)
            ]
        )

    base = Baseline("pinned", timed([1.0] * 5))
    without = Baseline("pinned", timed([math.nan] * 5))
    assert list(cost.beyond(timed([1.5] * 5), base, table)) == []
    (said,) = cost.beyond(timed(values), base, table)
    assert "the time of a step is nan s" in said
    assert list(cost.beyond(timed([1.5] * 5), without, table)) == []


def test_a_count_of_recompiles_that_is_nan_does_not_settle(make_facts: Make) -> None:
    def counted(value: object) -> Facts:
        every = [one.model_copy(update={"counters": {"recompiles": value}}) for one in steps()]
        return make_facts(every)

    assert not graph_breaks._never_settles(counted([0, 0]).launches[0])
    assert graph_breaks._never_settles(counted([math.nan, 0]).launches[0])
    assert graph_breaks._never_settles(counted([0, math.nan]).launches[0])


def test_a_counter_that_some_steps_lack_shows_nothing_of_them(make_facts: Make) -> None:
    lacking = {name: value for name, value in GOOD.items() if name != "cp_bytes_exchanged"}
    finding = exercised.check(facts_with(make_facts, ON, GOOD, lacking, lacking), Context())
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, False)
    assert finding.message == "train: no cp_bytes_exchanged at step 2, one of 2"
    once = {name: value for name, value in GOOD.items() if name != "graphs_captured"}
    assert exercised.check(facts_with(make_facts, ON, GOOD, once), Context()).outcome == "pass"


def test_steps_out_of_order_fail_and_are_shown_in_order(make_facts: Make) -> None:
    one, two, three, four, five = steps()
    facts = make_facts([one, three, two, four, five])
    finding = finite.check(facts, Context())
    assert finding.outcome is Outcome.FAIL
    assert "out of order: 2 after 3" in finding.message
    from sweep.judge import judge

    shown = Result(judge(facts, Context()), Path("outputs"), "", make_facts([five, two, one]))
    assert shown.losses == "2.9000 > 2.5000"


def test_a_thousand_wrong_steps_are_counted_and_not_listed(make_facts: Make) -> None:
    (one, *_) = steps()
    twice = [one.model_copy(update={"step": n}) for n in range(1, 1001) for _ in range(2)]
    message = finite.check(make_facts(twice, last_step=1000), Context()).message
    assert "more than once: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 990 more" in message
    assert len(message) < 200
