"""What moved since an earlier night is told with what else moved; without a baseline nothing is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweep.checks import Context, Finding, Outcome, drift, thresholds
from sweep.facts import Facts, Step
from sweep.judge import Verdict, judge
from tests.sweep.conftest import CASE

Make = Callable[..., Facts]
NOW = {"torch": "2.13.0", "transformers": "5.24.0", "git_sha": "b" * 40, "host": "one"}


@pytest.fixture
def night(make_facts: Make) -> Callable[..., Facts]:
    """A night of the case: what it changes at which step, and what it ran under."""

    def make(
        sweep_id: str = "20260102-000000",
        changes: dict[int, dict[str, Any]] | None = None,
        **environment: str,
    ) -> Facts:
        steps = [
            Step.model_validate(
                {"step": n, "loss": 3.0 - 0.1 * n, "grad_norm": 1.0, "params_moved": 1.0,
                 "global_batch_digest": f"batch {n}", **(changes or {}).get(n, {})}
            )
            for n in range(1, 6)
        ]  # fmt: skip
        update = {"sweep_id": sweep_id, "environment": NOW | environment}
        return make_facts(steps).model_copy(update=update)

    return make


def against(
    facts: Facts, last_good: Facts | None = None, pinned: Facts | None = None
) -> Finding | None:
    return drift.check(facts, context(last_good, pinned))


def context(last_good: Facts | None = None, pinned: Facts | None = None) -> Context:
    return Context(
        last_good={CASE.id: last_good} if last_good else {},
        pinned={CASE.id: pinned} if pinned else {},
    )


def test_without_an_earlier_night_there_is_no_finding_and_no_pass(night: Make) -> None:
    assert against(night()) is None
    assert "drift" not in {one.check for one in judge(night(), Context()).findings}


def test_an_equal_night_passes(night: Make) -> None:
    finding = against(night(), night("20260101-000000"))
    assert finding is not None
    assert (finding.outcome, finding.message) == (Outcome.PASS, "")
    assert finding.metrics["drift/loss_delta_max"] == 0.0


def test_a_loss_that_moved_is_told_with_the_commit_that_moved(night: Make) -> None:
    before = night("20260101-000000", git_sha="a" * 40)
    finding = against(night(changes={4: {"loss": 2.65}}), before)
    assert finding is not None
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith(
        "step 4: loss is 2.65, 2.6 in the last good sweep 20260101-000000: off by 5.00e-02"
    )
    assert finding.message.endswith("; since then: git_sha aaaaaaaaa > bbbbbbbbb")
    assert finding.metrics["drift/loss_delta_max"] == pytest.approx(0.05 / 2.6)


def test_that_nothing_moved_is_told_as_well(night: Make) -> None:
    finding = against(night(changes={1: {"grad_norm": 2.0}}), night("20260101-000000"))
    assert finding is not None
    assert finding.message.endswith("; nothing moved since then")


def test_it_is_advisory_unless_configured_to_block(
    night: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, before = night(changes={4: {"loss": 2.65}}), night("20260101-000000")
    assert judge(moved, context(before)).verdict is Verdict.PASSED
    blocking = thresholds.table().model_copy(update={"advisory": []})
    monkeypatch.setattr(thresholds, "table", lambda: blocking)
    assert judge(moved, context(before)).verdict is Verdict.FAILED


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_with_another_version_of_a_library_there_is_no_baseline(night: Make, library: str) -> None:
    before = night("20260101-000000", **{library: "1.0"})
    finding = against(night(changes={4: {"loss": 2.65}}), before)
    assert finding is not None
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, True)
    assert finding.message == (
        f"no baseline: {library} 1.0 > {NOW[library]} since the last good sweep 20260101-000000;"
        " relative differences: loss 1.9e-02, grad_norm 0.0e+00"
    )


@pytest.mark.parametrize(
    ("label", "other", "said"),
    [("device", "cuda", "device cuda > cpu"), ("dtype", "bfloat16", "dtype bfloat16 > float32"),
     ("seed", 1, "seed 1 > 0"), ("scale", "tiny", "scale tiny > nano")],
)  # fmt: skip
def test_another_case_under_the_same_id_is_no_baseline(
    night: Make, label: str, other: object, said: str
) -> None:
    pinned = night("20260101-000000")
    pinned.case = CASE.model_copy(update={label: other})
    finding = against(night(changes={4: {"loss": 2.65}}), pinned=pinned)
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.message == f"no baseline: {said} since the pinned sweep 20260101-000000"


def test_other_data_are_no_baseline(night: Make) -> None:
    other = {2: {"global_batch_digest": "other"}}
    finding = against(night(), night("20260101-000000", other))
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.message.startswith("no baseline: step 2: the global batch is batch 2, other in")
    assert finding.metrics == {}


def test_a_baseline_that_is_pinned_shows_what_each_night_alone_hides(night: Make) -> None:
    pinned = night("20251201-000000", {n: {"loss": (3.0 - 0.1 * n) * 1.001} for n in range(1, 6)})
    finding = against(night(), night("20260101-000000"), pinned)
    assert finding is not None
    assert finding.outcome is Outcome.FAIL
    assert "in the pinned sweep 20251201-000000" in finding.message
    assert "last good" not in finding.message


def test_one_sweep_that_is_both_is_compared_once(night: Make) -> None:
    before = night("20260101-000000")
    finding = against(night(changes={4: {"loss": 2.65}}), before, before)
    assert finding is not None
    assert finding.message.count("step 4: loss") == 1


def test_a_pinned_case_that_never_trained_is_no_baseline(night: Make) -> None:
    broken = night("20251201-000000", {3: {"loss": float("nan")}})
    finding = against(night(), pinned=broken)
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "did not train to its end in the pinned sweep" in finding.message


def test_without_a_threshold_of_its_dtype_nothing_is_said_to_be_equal(night: Make) -> None:
    facts, before = night(), night("20260101-000000")
    facts.case = before.case = CASE.model_copy(update={"dtype": "bfloat16"})
    finding = against(facts, before)
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "conf/thresholds.yaml has no drift.loss.cpu.bfloat16" in finding.message
