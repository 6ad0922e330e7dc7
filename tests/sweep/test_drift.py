"""What moved since an earlier night is told with what else moved; without a baseline nothing is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweep.checks import Context, Finding, Outcome, drift, thresholds
from sweep.facts import Facts, Step
from sweep.judge import Verdict, judge
from tests.sweep.confs import limits
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
                {
                    "step": n,
                    "loss": 3.0 - 0.1 * n,
                    "grad_norm": 1.0,
                    "params_moved": 1.0,
                    "global_batch_digest": f"batch {n}",
                    **(changes or {}).get(n, {}),
                }
            )
            for n in range(1, 6)
        ]
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
    assert finding.message.endswith("; moved: git_sha aaaaaaaaa > bbbbbbbbb")
    assert finding.metrics["drift/loss_delta_max"] == pytest.approx(0.05 / 2.6)


def test_that_nothing_moved_is_told_as_well(night: Make) -> None:
    finding = against(night(changes={1: {"grad_norm": 2.0}}), night("20260101-000000"))
    assert finding is not None
    assert finding.message.endswith("; moved: nothing")


def test_it_is_advisory_unless_configured_to_block(
    night: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved, before = night(changes={4: {"loss": 2.65}}), night("20260101-000000")
    assert judge(moved, context(before)).verdict is Verdict.PASSED
    blocking = limits().model_copy(update={"advisory": []})
    monkeypatch.setattr(thresholds, "table", lambda _: blocking)
    assert judge(moved, context(before)).verdict is Verdict.FAILED


@pytest.mark.parametrize("library", ["torch", "transformers"])
def test_another_library_is_compared_with_and_named(night: Make, library: str) -> None:
    before = night("20260101-000000", **{library: "1.0"})
    equal, moved = against(night(), before), against(night(changes={4: {"loss": 2.65}}), before)
    assert equal is not None
    assert (equal.outcome, equal.message) == (Outcome.PASS, "")
    assert moved is not None
    assert moved.outcome is Outcome.FAIL
    assert moved.message.endswith(f"; moved: {library} 1.0 > {NOW[library]}")


@pytest.mark.parametrize(
    ("label", "other", "said"),
    [("device", "cuda", "device cuda > cpu"), ("dtype", "bfloat16", "dtype bfloat16 > float32"),
     ("seed", 1, "seed 1 > 0"), ("scale", "tiny", "scale.name tiny > nano")],
)  # fmt: skip
def test_another_case_under_the_same_id_is_no_baseline(
    night: Make, label: str, other: object, said: str
) -> None:
    pinned = night("20260101-000000")
    pinned.case = CASE.model_copy(update={label: other})
    finding = against(night(changes={4: {"loss": 2.65}}), pinned=pinned)
    assert finding is not None
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, True)
    assert finding.message == f"not comparable with the pinned sweep 20260101-000000: {said}"


def with_identity(facts: Facts, **changed: Any) -> Facts:
    """The facts with another setting (`optim.lr`), checkpoint or data."""
    assert facts.identity is not None
    return facts.model_copy(update={"identity": facts.identity.model_copy(update=changed)})


def test_another_setting_is_no_baseline_and_speaks_against_nothing(
    night: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = with_identity(night("20260101-000000"), settings={"optim.lr": 1e-3})
    moved = night(changes={4: {"loss": 2.65}})
    finding = against(moved, before)
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.message == (
        "not comparable with the last good sweep 20260101-000000: optim.lr 0.001 > 0.0001"
    )
    blocking = limits().model_copy(update={"advisory": []})
    monkeypatch.setattr(thresholds, "table", lambda _: blocking)
    assert judge(moved, context(before)).verdict is Verdict.PASSED


@pytest.mark.parametrize("name", ["checkpoint", "data"])
def test_a_checkpoint_or_data_that_nobody_changed_are_told(
    night: Make, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = with_identity(night("20260101-000000", git_sha="a" * 40), **{name: "other"})
    facts = night()
    finding = against(facts, before)
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.message == (
        f"not comparable with the last good sweep 20260101-000000: {name} other > {name[0]}1, under"
        " the same settings; moved: git_sha aaaaaaaaa > bbbbbbbbb"
    )
    assert judge(facts, context(before)).verdict is Verdict.PASSED
    blocking = limits().model_copy(update={"advisory": []})
    monkeypatch.setattr(thresholds, "table", lambda _: blocking)
    assert judge(facts, context(before)).verdict is Verdict.INCONCLUSIVE


def test_other_batches_of_the_same_data_have_drifted(night: Make) -> None:
    """As where a trainer that reports no digest of its data begins to train on other tokens."""
    other = {2: {"global_batch_digest": "other"}}
    finding = against(night(), night("20260101-000000", other))
    assert finding is not None
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("step 2: the global batch is batch 2, other in the last good")
    assert finding.message.endswith("not the same data; moved: nothing")
    assert finding.metrics == {}


def test_facts_without_an_identity_are_no_baseline_and_say_so(night: Make) -> None:
    old = night("20260101-000000").model_copy(update={"identity": None})
    finding = against(night(), old)
    assert finding is not None
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, True)
    assert finding.message == (
        "not comparable with the last good sweep 20260101-000000: settings unknown: sweep"
        " 20260101-000000 was recorded by an earlier version"
    )


def routed(*places: float) -> dict[str, Any]:
    """A step with these choices of experts, by place."""
    return {"choices_by_place": list(places), "counters": {"choices_fingerprint": sum(places)}}


def test_too_many_other_choices_of_experts_have_drifted(night: Make) -> None:
    """Experts that traded their names at load in every layout: losses agree, routing does not."""
    before = night("20260101-000000", {2: routed(1, 1, 1, 1, 1, 1)})
    finding = against(night(changes={2: routed(2, 2, 2, 2, 2, 1)}), before)
    assert finding is not None
    assert finding.outcome is Outcome.FAIL
    assert "step 2: tokens at 5 places of the batch have other experts or keys" in finding.message
    tie = against(night(changes={2: routed(1, 1, 1, 1, 1, 2)}), before)
    assert tie is not None
    assert tie.outcome is Outcome.PASS


def test_other_choices_from_the_first_step_on_leave_nothing_to_compare(night: Make) -> None:
    finding = against(night(changes={1: routed(2)}), night("20260101-000000", {1: routed(1)}))
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.message.startswith("no step could be compared; ")


def test_untrained_buffers_are_compared(night: Make) -> None:
    before = night("20260101-000000", {3: {"buffers_digest": "a"}})
    finding = against(night(changes={3: {"buffers_digest": "b"}}), before)
    assert finding is not None
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("step 3: untrained buffers (routers' biases) are b, a in")


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


def test_without_a_threshold_nothing_is_said_to_be_equal(
    night: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = limits()
    bare = table.model_copy(update={"thresholds": {**table.thresholds, "drift": {}}})
    monkeypatch.setattr(thresholds, "table", lambda _: bare)
    finding = against(night(), night("20260101-000000"))
    assert finding is not None
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "conf/thresholds.yaml has no drift.loss.cpu.float32" in finding.message
