"""A layout or feature that computes something else fails, and says what, where and by how much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sweep.case.identity import Identity
from sweep.checks import Context, Finding, Outcome, parity, thresholds
from sweep.checks.thresholds import Table, Threshold
from sweep.facts import Facts, Step
from tests.sweep.confs import limits
from tests.sweep.conftest import CASE

Make = Callable[..., Facts]
LAYOUTS = {"single": (1, 1, 1), "fsdp4_ep4": (4, 1, 4), "cp4_ep4": (4, 4, 4)}
GROUPS = {"embedding": 0.5, "router": 0.1}


def step(number: int, **changes: Any) -> Step:
    values: dict[str, Any] = {
        "step": number, "loss": 8.0 - number, "grad_norm": 2.0, "grad_norm_groups": GROUPS,
        "global_batch_digest": f"batch {number}", "counters": {"choices_fingerprint": [3.0, 4.0]},
    }  # fmt: skip
    return Step.model_validate(values | changes)


@pytest.fixture
def case(make_facts: Make) -> Callable[..., Facts]:
    """Facts of five equal steps, or those given by number, of a case with the labels given."""

    def make(
        layout: str, changes: dict[int, dict[str, Any]] | None = None, count: int = 5, **labels: Any
    ) -> Facts:
        world_size, cp, ep = LAYOUTS[layout]
        label = {"arch": "qwen3_moe", "feature": "base", "layout": layout, **labels}
        label.setdefault("id", f"{label['arch']}-{layout}-{label['feature']}")
        steps = [step(n, **(changes or {}).get(n, {})) for n in range(1, count + 1)]
        made = make_facts(steps, last_step=labels.get("steps", 5))
        made.case = CASE.model_copy(update=label | {"world_size": world_size})
        made.asked = {"cp": cp, "ep": ep, "min_steps": labels.get("steps")}
        return made

    return make


def checked(facts: Facts, *others: Facts) -> Finding:
    finding = parity.check(facts, in_one_sweep(facts, *others))
    assert finding is not None
    return finding


def in_one_sweep(*all_facts: Facts) -> Context:
    return Context({facts.case.id: facts for facts in all_facts})


def test_equal_steps_pass_with_deltas_of_zero(case: Make) -> None:
    finding = checked(case("cp4_ep4"), case("fsdp4_ep4"))
    assert (finding.outcome, finding.message, finding.folder) == (Outcome.PASS, "", "")
    assert finding.metrics == {
        "parity/loss_delta_max": 0.0,
        "parity/grad_norm_delta_max": 0.0,
        "parity/grad_norm_groups_delta_max": 0.0,
    }


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ({}, {"aux_loss": 1.0}, "aux_loss is not reported, unlike qwen3_moe-fsdp4_ep4-base"),
        ({"aux_loss": 1.0}, {}, "aux_loss is reported"),
        ({"grad_norm": None}, {}, "grad_norm is not reported"),
        ({}, {"buffers_digest": "b"}, "untrained buffers"),
    ],
)
def test_a_figure_that_one_of_the_two_has_alone_fails(
    case: Make, ours: dict[str, Any], theirs: dict[str, Any], said: str
) -> None:
    finding = checked(case("cp4_ep4", {4: ours}), case("fsdp4_ep4", {4: theirs}))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith(f"step 4: {said}")


def test_losses_that_are_compared_alone_are_told(case: Make) -> None:
    silent = {n: {"grad_norm": None, "grad_norm_groups": {}} for n in range(1, 6)}
    finding = checked(case("cp4_ep4", silent), case("fsdp4_ep4", silent))
    assert finding.outcome is Outcome.PASS
    assert finding.message == (
        "not compared, since it is not reported: grad_norm, grad_norm of parameter groups"
    )


def test_a_case_that_is_compared_with_nothing_says_so_and_does_not_fail(case: Make) -> None:
    finding = checked(case("cp4_ep4"))
    assert (finding.outcome, finding.advisory, finding.alone) == (Outcome.INCONCLUSIVE, True, True)
    assert finding.message.startswith("compared with nothing")
    assert parity.check(case("single"), in_one_sweep(case("single"), case("cp4_ep4"))) is None, (
        "cp4 is compared with it"
    )
    assert parity.check(case("cp4_ep4", count=2), in_one_sweep(case("cp4_ep4", count=2))) is None


def test_a_feature_is_compared_with_itself_in_a_plainer_layout_where_no_base_case_is(
    case: Make,
) -> None:
    single, split = (case(layout, feature="ac_only") for layout in ("single", "cp4_ep4"))
    split.steps[1].grad_norm = 2.05
    finding = checked(split, single)
    assert finding.outcome is Outcome.FAIL
    assert "step 2: grad_norm is 2.05, 2 in qwen3_moe-single-ac_only" in finding.message
    assert parity.check(single, in_one_sweep(single, case("cp4_ep4", feature="ac_only"))) is None


def test_each_axis_is_compared(case: Make) -> None:
    """A feature that is wrong everywhere agrees with itself in another layout."""
    wrong = {2: {"loss": 6.1}}
    feature = case("cp4_ep4", wrong, feature="ac_only")
    same, base = case("single", wrong, feature="ac_only"), case("cp4_ep4")
    finding = checked(feature, same, base, case("single"))
    assert finding.outcome is Outcome.FAIL
    assert "step 2: loss is 6.1, 6 in qwen3_moe-cp4_ep4-base" in finding.message
    other_layout = checked(case("cp4_ep4", wrong), case("cp4_ep4", wrong, feature="none"),
                           case("single"))  # fmt: skip
    assert "step 2: loss is 6.1, 6 in qwen3_moe-single-base" in other_layout.message


def test_an_axis_whose_reference_is_broken_leaves_the_other(case: Make) -> None:
    feature, broken = case("cp4_ep4", feature="ac_only"), case("cp4_ep4", count=2)
    assert checked(feature, broken, case("single", feature="ac_only")).outcome is Outcome.PASS


def test_two_that_differ_are_both_named_and_the_reference_is_told(case: Make) -> None:
    ours, theirs = case("cp4_ep4", {3: {"loss": 5.1}}), case("single")
    finding = checked(ours, theirs)
    said = "no other case tells which of the two is wrong, qwen3_moe-cp4_ep4-base or"
    assert said in finding.message
    told = checked(theirs, ours)
    assert (told.outcome, told.advisory) == (Outcome.INCONCLUSIVE, True)
    assert "step 3: loss is 5, 5.1 in qwen3_moe-cp4_ep4-base" in told.message


def test_the_reference_fails_where_the_others_agree_with_each_other(case: Make) -> None:
    plain = case("single", {3: {"loss": 5.1}})
    others = [case("fsdp4_ep4"), case("cp4_ep4")]
    finding = checked(plain, *others)
    assert finding.outcome is Outcome.FAIL
    assert finding.message.endswith(
        "qwen3_moe-cp4_ep4-base agree with qwen3_moe-fsdp4_ep4-base: qwen3_moe-single-base is the"
        " odd one"
    )
    assert finding.margin is not None
    right = checked(others[0], others[1], plain)
    assert right.outcome is Outcome.PASS
    assert "qwen3_moe-single-base is the odd one" in right.message


def test_the_odd_one_fails_where_the_others_agree_with_the_reference(case: Make) -> None:
    plain, wrong = case("single"), case("fsdp4_ep4", {3: {"loss": 5.1}})
    finding = checked(wrong, plain, case("cp4_ep4"))
    assert finding.outcome is Outcome.FAIL
    assert "qwen3_moe-fsdp4_ep4-base is the odd one" in finding.message
    assert checked(case("cp4_ep4"), plain, wrong).outcome is Outcome.PASS
    told = checked(plain, wrong, case("cp4_ep4"))
    assert told.advisory, "two of three agree with it"


def test_a_repeat_that_is_nearer_is_what_is_compared(case: Make) -> None:
    ours, theirs = case("cp4_ep4", {4: {"loss": 4.01}}), case("single")
    assert checked(ours, theirs).outcome is Outcome.FAIL
    again = case("single", {4: {"loss": 4.01}}).launches[0]
    theirs.launches.append(again.model_copy(update={"name": "train_again", "repeats": "train"}))
    assert checked(ours, theirs).outcome is Outcome.PASS


def test_one_bad_step_fails_at_that_step_with_everything_said(case: Make) -> None:
    finding = checked(case("cp4_ep4", {3: {"loss": 5.01}}), case("fsdp4_ep4"))
    assert finding.outcome is Outcome.FAIL
    limit = limits().of("parity", "loss", "cpu", "float32")
    assert finding.message.startswith(
        "step 3: loss is 5.01, 5 in qwen3_moe-fsdp4_ep4-base: off by 1.00e-02 (relative 2.00e-03);"
        " at most 2.00e-03 relative at step 3, +4.00e-04 on average;"
        f" threshold {limit.value:.1e} relative ({limit.source})"
    )
    assert finding.folder == "launches/1_train"
    assert finding.metrics["parity/loss_delta_max"] == pytest.approx(2e-3)


def test_all_steps_bad_fail_at_the_first_and_the_largest_is_told(case: Make) -> None:
    wrong = {n: {"grad_norm": 2.0 + n} for n in range(1, 6)}
    message = checked(case("cp4_ep4", wrong), case("fsdp4_ep4")).message
    assert message.startswith("step 1: grad_norm is 3, 2 in qwen3_moe-fsdp4_ep4-base")
    assert "at most 2.50e+00 relative at step 5, +1.50e+00 on average" in message


def test_a_group_whose_gradient_is_wrong_fails_where_loss_and_total_agree(case: Make) -> None:
    wrong = {2: {"grad_norm_groups": GROUPS | {"router": 0.2}}}
    finding = checked(case("cp4_ep4", wrong), case("fsdp4_ep4"))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("step 2: grad_norm of router is 0.2, 0.1 in")
    assert finding.metrics["parity/grad_norm_groups_delta_max"] == pytest.approx(1.0)


def test_a_group_without_a_gradient_fails(case: Make) -> None:
    finding = checked(
        case("cp4_ep4", {1: {"grad_norm_groups": {"embedding": 0.5}}}), case("single")
    )
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("step 1: no gradient of router, unlike qwen3_moe-single-base")


def test_a_message_leads_with_the_figure_farthest_beyond_its_limit(case: Make) -> None:
    wrong = {1: {"loss": 7.0 + 1.4e-4}, 2: {"grad_norm_groups": GROUPS | {"router": 0.2}}}
    message = checked(case("cp4_ep4", wrong), case("fsdp4_ep4")).message
    assert message.startswith("step 2: grad_norm of router"), "not with the loss, off at step 1"
    assert "; also beyond their thresholds: loss (12 times);" in message


def test_a_drift_to_one_side_fails_by_its_mean_where_no_step_does(case: Make) -> None:
    limit = limits().of("parity", "loss", "cpu", "float32")
    assert limit.mean is not None
    assert limit.mean < 1e-6 < limit.value
    low = {n: {"loss": (8.0 - n) * (1 + 1e-6)} for n in range(1, 6)}
    finding = checked(case("cp4_ep4", low), case("fsdp4_ep4"))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("steps 1 to 5: loss is off by +1.00e-06 relative on average")
    said = f"threshold of the mean {limit.mean:.1e} relative ({limit.mean_source})"
    assert said in finding.message


def test_rounding_to_both_sides_passes(case: Make) -> None:
    around = {n: {"loss": (8.0 - n) * (1 + 3e-7 * (-1) ** n)} for n in range(1, 6)}
    assert checked(case("cp4_ep4", around), case("fsdp4_ep4")).outcome is Outcome.PASS


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_figure_that_is_no_number_is_far_from_everything(case: Make, value: float) -> None:
    assert checked(case("cp4_ep4", {2: {"loss": value}}), case("single")).outcome is Outcome.FAIL


def test_other_data_are_a_failure_that_says_so(case: Make) -> None:
    finding = checked(case("cp4_ep4", {2: {"global_batch_digest": "x"}}), case("single"))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith(
        "step 2: the global batch is x, batch 2 in qwen3_moe-single-base: not the same data"
    )


def test_a_trainer_that_does_not_report_its_batches_is_shown_and_not_failed(case: Make) -> None:
    unseen = {n: {"global_batch_digest": None} for n in range(1, 6)}
    finding = checked(case("cp4_ep4", unseen | {5: {"global_batch_digest": None, "loss": 9.0}}),
                      case("fsdp4_ep4", unseen))  # fmt: skip
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, True)
    assert "does not report global_batch_digest" in finding.message
    assert "step 5: loss is 9, 3 in" in finding.message


def test_steps_are_aligned_by_number_whatever_their_position(case: Make) -> None:
    longer = case("fsdp4_ep4", count=8, feature="resume", steps=8)
    assert checked(case("cp4_ep4"), longer).outcome is Outcome.PASS
    shifted = case("cp4_ep4")
    shifted.launches[0].metrics.steps.reverse()
    assert checked(shifted, longer).outcome is Outcome.PASS


@pytest.mark.parametrize("count", [0, 3])
def test_too_few_steps_in_common_are_no_pass(case: Make, count: int) -> None:
    finding = checked(case("cp4_ep4", count=count), case("fsdp4_ep4"))
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, False)


def chosen(*numbers: int, loss: float = 0.0) -> dict[int, dict[str, Any]]:
    other = {"choices_fingerprint": [3.0, 5.0]}
    return {n: {"counters": other, "loss": (8.0 - n) * (1 + loss)} for n in numbers}


def test_steps_from_another_choice_on_are_not_compared_and_told(case: Make) -> None:
    other = chosen(4, loss=1e-4) | chosen(5)
    finding = checked(case("cp4_ep4", other), case("fsdp4_ep4"))
    assert finding.outcome is Outcome.PASS
    assert finding.message == (
        "other experts or keys than in qwen3_moe-fsdp4_ep4-base from step 4 on: the loss is at"
        " most 4.0e-04 (relative 1.0e-04) off from there"
    )
    assert finding.metrics["parity/loss_delta_max"] == 0.0


def test_another_choice_does_not_excuse_what_came_before(case: Make) -> None:
    wrong = chosen(4, 5) | {2: {"loss": 6.1}}
    finding = checked(case("cp4_ep4", wrong), case("fsdp4_ep4"))
    assert finding.message.startswith("step 2: loss is 6.1")


def test_another_choice_does_not_explain_a_loss_far_off(case: Make) -> None:
    finding = checked(case("cp4_ep4", chosen(4, 5, loss=2e-3)), case("fsdp4_ep4"))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith("step 4: loss is 4.008, 4 in")
    assert "chosen differently from step 4 on, which does not explain it" in finding.message


def test_another_choice_from_the_first_step_on_is_no_pass(case: Make) -> None:
    finding = checked(case("cp4_ep4", chosen(1, 2, 3, 4, 5)), case("fsdp4_ep4"))
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, False)
    assert "no step could be compared; try data.seed=1" in finding.message


def test_where_no_threshold_is_set_for_what_follows_other_choices_excuse_nothing(
    case: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    coarse = {"cpu": {"bfloat16": Threshold(value=1e-2, source="a test")}}
    table = Table(thresholds={"parity": {"loss": coarse, "grad_norm": coarse}})
    monkeypatch.setattr(thresholds, "table", lambda _: table)
    single = case("single", dtype="bfloat16")
    near = case("cp4_ep4", chosen(1, 2, 3, 4, 5, loss=1e-3), dtype="bfloat16")
    assert checked(near, single).outcome is Outcome.PASS
    far = case("cp4_ep4", chosen(1, 2, 3, 4, 5, loss=2e-2), dtype="bfloat16")
    assert checked(far, single).message.startswith("step 1: loss is 7.14, 7 in")


def test_choices_are_the_same_on_whichever_rank_they_were_made(case: Make) -> None:
    other = {n: {"counters": {"choices_fingerprint": [7.0]}} for n in range(1, 6)}
    assert checked(case("cp4_ep4"), case("single", other)).message == ""


def reference_of(facts: Facts, *others: Facts) -> str | None:
    """What a case that is wrong at each step is compared with, by the message."""
    for number in facts.steps:
        number.loss += 1.0
    finding = parity.check(facts, in_one_sweep(facts, *others))
    if finding is None or finding.advisory:
        return None
    return finding.message.split(" in ")[1].split(":")[0]


def test_one_process_is_the_reference_of_base_cases_where_there_is_one(case: Make) -> None:
    others = case("fsdp4_ep4"), case("single"), case("single", arch="llama")
    assert reference_of(case("cp4_ep4"), *others) == "qwen3_moe-single-base"


def test_without_one_process_the_split_sequence_is_compared_with_the_whole(case: Make) -> None:
    assert reference_of(case("cp4_ep4"), case("fsdp4_ep4")) == "qwen3_moe-fsdp4_ep4-base"
    assert reference_of(case("fsdp4_ep4"), case("cp4_ep4")) is None


def test_a_resume_is_the_base_case_of_its_layout_by_its_first_launch(case: Make) -> None:
    resume = case("fsdp4_ep4", feature="resume", count=8, steps=8)
    assert reference_of(case("cp4_ep4"), resume) == "qwen3_moe-fsdp4_ep4-resume"


def test_a_feature_is_compared_with_the_base_case_of_its_own_layout(case: Make) -> None:
    feature = case("cp4_ep4", feature="fullgraph")
    others = case("single"), case("fsdp4_ep4"), case("cp4_ep4")
    assert reference_of(feature, *others) == "qwen3_moe-cp4_ep4-base"


def test_a_feature_without_its_base_case_is_compared_with_the_plainest(case: Make) -> None:
    feature = case("cp4_ep4", feature="fullgraph")
    others = case("fsdp4_ep4"), case("single"), case("cp4_ep4", feature="selective_ac")
    assert reference_of(feature, *others) == "qwen3_moe-single-base"


def test_with_dropout_only_cases_of_one_layout_are_compared(case: Make) -> None:
    base, feature = case("cp4_ep4"), case("cp4_ep4", feature="fullgraph")
    for facts in (base, feature):
        facts.asked["attention_dropout"] = 0.1
    assert reference_of(feature, case("single"), base) == "qwen3_moe-cp4_ep4-base"
    assert reference_of(base, case("single"), feature) is None


@pytest.mark.parametrize(
    "labels",
    [{"seed": 1}, {"dtype": "bfloat16"}, {"scale": "tiny"}, {"trainer": "sft"}, {"arch": "llama"}],
)
def test_cases_that_train_something_else_are_no_reference(
    case: Make, labels: dict[str, Any]
) -> None:
    assert reference_of(case("cp4_ep4"), case("single", **labels)) is None


def test_another_setting_or_number_of_steps_is_no_reference(case: Make) -> None:
    other = case("single")
    other.identity = Identity(settings={"optim.lr": 1e-3})
    assert reference_of(case("cp4_ep4"), other) is None
    longer = case("single", count=8, steps=8)
    assert reference_of(case("cp4_ep4"), longer) == "qwen3_moe-single-base", "by its feature"
    longer.asked["min_steps"] = None
    assert reference_of(case("cp4_ep4"), longer) is None


def test_other_data_are_no_reason_to_compare_with_nothing(case: Make) -> None:
    other = case("single", {1: {"global_batch_digest": "other"}})
    other.identity = Identity(settings={"optim.lr": 1e-4}, checkpoint="c1", data="d2")
    assert "not the same data" in checked(case("cp4_ep4"), other).message


def test_another_checkpoint_says_nothing_of_the_layout(case: Make) -> None:
    other = case("single", {1: {"loss": 3.0}})
    other.identity = Identity(settings={"optim.lr": 1e-4}, checkpoint="c2", data="d1")
    finding = checked(case("cp4_ep4"), other)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.message == "not comparable with qwen3_moe-single-base: checkpoint c2 > c1"


def test_a_broken_reference_is_passed_over_for_the_next(case: Make) -> None:
    broken = case("single", {2: {"loss": math.nan}})
    assert reference_of(case("cp4_ep4"), broken, case("fsdp4_ep4")) == "qwen3_moe-fsdp4_ep4-base"


def test_where_every_reference_is_broken_nothing_is_known(case: Make) -> None:
    finding = checked(case("cp4_ep4"), case("fsdp4_ep4", count=2))
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, False)
    assert (
        finding.message
        == "nothing to compare with: qwen3_moe-fsdp4_ep4-base did not train to its end"
    )


def test_a_missing_threshold_names_the_line_to_add(case: Make) -> None:
    finding = checked(case("cp4_ep4", dtype="float16"), case("single", dtype="float16"))
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, False)
    assert "conf/thresholds.yaml has no parity.loss.cpu.float16; add it" in finding.message


def test_an_architecture_may_have_its_own_threshold(case: Make) -> None:
    wrong = {1: {"grad_norm_groups": GROUPS | {"embedding": 0.502, "router": 0.10005}}}
    kinked = case("cp4_ep4", wrong, arch="qwen4_exp"), case("single", arch="qwen4_exp")
    assert checked(*kinked).outcome is Outcome.PASS
    assert checked(case("cp4_ep4", wrong), case("single")).outcome is Outcome.FAIL
    wrong[1]["grad_norm_groups"] = GROUPS | {"router": 0.1002}
    assert (
        "threshold 1.0e-03" in checked(case("cp4_ep4", wrong, arch="qwen4_exp"), kinked[1]).message
    )


def test_routers_with_other_biases_fail_while_choices_agree(case: Make) -> None:
    digests = [{n: {"buffers_digest": text} for n in range(1, 6)} for text in ("ours", "theirs")]
    finding = checked(case("cp4_ep4", digests[0]), case("single", digests[1]))
    assert finding.outcome is Outcome.FAIL
    assert "step 1: untrained buffers (routers' biases) are ours, theirs in" in finding.message


def test_an_auxiliary_loss_is_compared_as_the_loss_is(case: Make) -> None:
    ours, theirs = ({n: {"aux_loss": loss} for n in range(1, 6)} for loss in (2.2, 2.0))
    finding = checked(case("cp4_ep4", ours), case("single", theirs))
    assert finding.outcome is Outcome.FAIL
    assert "step 1: aux_loss is 2.2, 2 in qwen3_moe-single-base" in finding.message
    limit = limits().of("parity", "loss", "cpu", "float32")
    assert limit.mean is not None
    assert finding.margin == pytest.approx(0.1 / limit.mean), "the mean is the stricter"


@pytest.mark.parametrize(("places", "outcome"), [(1, Outcome.PASS), (20, Outcome.FAIL)])
def test_a_few_tokens_with_other_experts_are_a_tie_and_many_are_not(
    case: Make, places: int, outcome: Outcome
) -> None:
    other = {"counters": {"choices_fingerprint": [9.0]}, "choices_by_place": [1.0] * 256}
    same = {"choices_by_place": [1.0] * (256 - places) + [2.0] * places}
    finding = checked(case("cp4_ep4", {4: other}), case("single", {4: same}))
    assert finding.outcome is outcome
    if outcome is Outcome.FAIL:
        assert "step 4: tokens at 20 places of the batch have other experts" in finding.message
        limit = limits().of("parity", "choices", "cpu", "float32")
        assert finding.margin == pytest.approx(20 / limit.value)


def test_a_planted_fault_is_held_against_the_reference_even_in_its_place(case: Make) -> None:
    name = {"fault": "dead_model", "id": "qwen3_moe-single-base-fault_dead_model"}
    faulty = case("single", {1: {"loss": 9.0}}, **name)
    assert checked(faulty, case("single")).outcome is Outcome.FAIL
    clean = parity.check(case("cp4_ep4"), in_one_sweep(case("cp4_ep4"), faulty))
    assert clean is not None
    assert clean.alone, "what is broken on purpose is no reference"


@pytest.mark.parametrize("name", ["clip_coefficient", "grad_norm_clipped"])
def test_clipping_by_another_norm_fails_where_all_else_agrees(case: Make, name: str) -> None:
    ours, theirs = ({n: {name: value} for n in range(1, 6)} for value in (0.5, 0.7))
    ours[4] |= chosen(4)[4]  # a tie, which excuses nothing before it
    finding = checked(case("cp4_ep4", ours), case("single", theirs))
    assert finding.outcome is Outcome.FAIL
    assert finding.message.startswith(f"step 1: {name} is 0.5, 0.7 in qwen3_moe-single-base")
    assert checked(case("cp4_ep4", ours), case("single", ours)).outcome is Outcome.PASS
    alone = checked(case("cp4_ep4", ours), case("single"))
    assert alone.message.startswith(f"step 1: {name} is reported, unlike")


@pytest.mark.parametrize(
    ("loss", "norm", "router", "outcome"),
    [(5.1e-4, 5.8e-3, 9.2e-3, Outcome.PASS),  # correct layouts, at most
     (5.0e-3, 0.0, 0.0, Outcome.FAIL),  # loss_local_mean:0.05
     (0.0, 8.0e-2, 0.0, Outcome.FAIL),  # grad_reduce_skipped:1
     (0.0, 0.0, 5.7e-2, Outcome.FAIL)],  # router_grad_detached:0.05
)  # fmt: skip
def test_bfloat16_on_a_cpu_is_compared(
    case: Make, loss: float, norm: float, router: float, outcome: Outcome
) -> None:
    groups = GROUPS | {"router": 0.1 * (1 + router)}
    off = {"loss": 5.0 * (1 + loss), "grad_norm": 2.0 * (1 + norm), "grad_norm_groups": groups}
    other = chosen(1, 2, 3, 4, 5)
    other[3] |= off
    finding = checked(case("cp4_ep4", other, dtype="bfloat16"), case("single", dtype="bfloat16"))
    assert finding.outcome is outcome
