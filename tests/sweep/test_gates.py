"""No gate is too loose, inverted or too strict: the exact verdict of each situation."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweep import report
from sweep.checks import Context, Finding, Outcome
from sweep.facts import Facts, Step
from sweep.judge import Judgement, Verdict, judge
from sweep.report import Result
from tests.sweep.conftest import CASE

Make = Callable[..., Facts]
Change = dict[str, Any]
EVERY = range(1, 6)
CASE_FOLDER = Path("outputs/1/case")


@pytest.fixture
def trained(make_facts: Make) -> Callable[..., Facts]:
    """A case of five steps, changed where said; `count` of them."""

    def make(layout: str = "cp4_ep1", changes: dict[int, Change] | None = None,
             count: int = 5) -> Facts:  # fmt: skip
        steps = [
            Step.model_validate(
                {
                    "step": n,
                    "loss": 3.0 - 0.1 * n,
                    "grad_norm": 1.0,
                    "params_moved": 1.0,
                    "grad_norm_groups": {"head": 1.0},
                    "global_batch_digest": f"batch {n}",
                    **(changes or {}).get(n, {}),
                }
            )
            for n in range(1, count + 1)
        ]
        facts = make_facts(steps)
        update = {"id": f"llama-{layout}-base", "layout": layout}
        facts.case = CASE.model_copy(
            update=update | ({"world_size": 1} if layout == "single" else {})
        )
        return facts

    return make


def judged(facts: Facts, reference: Facts | None = None, before: Facts | None = None) -> Judgement:
    sweep = {one.case.id: one for one in (facts, reference) if one is not None}
    return judge(facts, Context(sweep, {facts.case.id: before} if before else {}))


def code(judgement: Judgement) -> int:
    return report.exit_code([Result(judgement, CASE_FOLDER, "python -m sweep")], None)


def verdict(changes: dict[int, Change], trained: Make, count: int = 5) -> Verdict:
    """Of a case with these changes, beside a good reference and a good earlier night."""
    return judged(trained("cp4_ep1", changes, count), trained("single"), trained()).verdict


def test_a_good_case_passes_every_gate(trained: Make) -> None:
    judgement = judged(trained(), trained("single"), trained())
    assert (judgement.verdict, code(judgement)) == (Verdict.PASSED, 0)
    assert {"parity", "drift"} <= {one.check for one in judgement.findings}
    assert not [one for one in judgement.findings if one.message]


@pytest.mark.parametrize("step", EVERY)
def test_one_bad_step_fails_whichever_it_is(trained: Make, step: int) -> None:
    assert verdict({step: {"loss": 2.0}}, trained) is Verdict.FAILED
    assert verdict({step: {"grad_norm": 1.1}}, trained) is Verdict.FAILED
    assert verdict({step: {"grad_norm_groups": {"head": 0.9}}}, trained) is Verdict.FAILED


def test_all_bad_fails(trained: Make) -> None:
    wrong = {n: {"loss": 4.0 - 0.1 * n, "grad_norm": 3.0} for n in EVERY}
    assert verdict(wrong, trained) is Verdict.FAILED


@pytest.mark.parametrize("factor", [1 - 1e-3, 1 + 1e-3])
def test_better_is_as_different_as_worse(trained: Make, factor: float) -> None:
    moved = {n: {"loss": (3.0 - 0.1 * n) * factor} for n in EVERY}
    assert verdict(moved, trained) is Verdict.FAILED


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_fails_alone_and_beside_a_reference(trained: Make, value: float) -> None:
    assert verdict({2: {"loss": value}}, trained) is Verdict.FAILED
    assert judged(trained(changes={2: {"loss": value}})).verdict is Verdict.FAILED


def test_the_same_nan_on_both_sides_is_no_agreement(trained: Make) -> None:
    nan = {2: {"loss": math.nan}}
    assert judged(trained(changes=nan), trained("single", nan)).verdict is Verdict.FAILED


def test_no_steps_at_all_fail_although_the_trainer_exits_0(trained: Make) -> None:
    assert verdict({}, trained, count=0) is Verdict.FAILED


def test_a_missing_baseline_is_no_finding_and_neither_pass_nor_failure(trained: Make) -> None:
    judgement = judged(trained())
    assert (judgement.verdict, code(judgement)) == (Verdict.PASSED, 0)
    assert "drift" not in {one.check for one in judgement.findings}
    assert judgement.words == "passed, not compared"


def test_what_the_oracle_computes_is_a_comparison(trained: Make) -> None:
    lone = judged(trained())
    opinions = {}
    for outcome in (Outcome.PASS, Outcome.INCONCLUSIVE):
        opinion = Finding(check="oracle", outcome=outcome)
        findings = [*lone.findings, opinion]
        opinions[outcome] = lone.model_copy(update={"findings": findings})
    assert opinions[Outcome.PASS].words == "passed"
    assert opinions[Outcome.INCONCLUSIVE].words == "passed, not compared"


@pytest.mark.parametrize("broken", [{3: {"loss": math.nan}}, {}])
def test_a_reference_that_broke_proves_nothing(trained: Make, broken: dict[int, Change]) -> None:
    reference = trained("single", broken, count=5 if broken else 0)
    judgement = judged(trained(), reference)
    assert (judgement.verdict, code(judgement)) == (Verdict.INCONCLUSIVE, 1)


def test_changed_versions_are_named_and_drift_is_shown_without_failing(trained: Make) -> None:
    before = trained()
    before.environment = {"torch": "2.12.0"}
    now = trained(changes={3: {"loss": 2.0}})
    now.environment = {"torch": "2.13.0"}
    judgement = judged(now, before=before)
    (drift,) = [one for one in judgement.findings if one.check == "drift"]
    assert (drift.outcome, drift.advisory) == ("fail", True)
    assert judgement.verdict is Verdict.PASSED
    assert "torch 2.12.0 > 2.13.0" in drift.message


def test_rounding_of_the_last_digit_passes_every_gate(trained: Make) -> None:
    rounded = {n: {"loss": (3.0 - 0.1 * n) * (1 + (-1) ** n * 2e-7)} for n in EVERY}
    assert verdict(rounded, trained) is Verdict.PASSED


def test_an_empty_sweep_is_no_success() -> None:
    assert report.exit_code([], None) == 2
