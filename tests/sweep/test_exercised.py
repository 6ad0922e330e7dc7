"""A layout or feature that was silently off fails, by the counter that shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sweep.checks import Outcome, exercised
from sweep.checks.base import Context
from sweep.facts import Facts, Step

Make = Callable[..., Facts]
ON = {
    "dp_shard": 2, "cp": 2, "ep": 4, "indexer": True, "ac": "full", "act_offload": True,
    "optim_offload": True, "full_offload": True, "compile": True, "attention": "flex",
    "linear_attention": "fla",
}  # fmt: skip
GOOD = {
    "cp_bytes_exchanged": [9.0] * 4,
    "params_sharded": [50] * 4,
    "cp_sequence_share": [0.5] * 4,
    "ep_tokens_received": [0, 3, 1, 2],
    "indexer_keys_dropped": [5] * 4,
    "flex_attention_calls": [4] * 4,
    "fla_calls": [2] * 4,
    "recomputed_layers": [2] * 4,
    "act_offload_bytes": [8] * 4,
    "optim_offload_bytes": [8] * 4,
    "params_on_cpu": [8] * 4,
    "graphs_captured": [3] * 4,
}


def facts_with(make_facts: Make, asked: dict[str, Any], *counters: dict[str, Any]) -> Facts:
    steps = [
        Step.model_validate({"step": n, "loss": 2.0, "grad_norm": 1.0, "counters": counts})
        for n, counts in enumerate(counters, start=1)
    ]
    return make_facts(steps).model_copy(update={"asked": {"cp": 1, "ep": 1} | asked})


def test_all_that_was_asked_for_and_shown_passes(make_facts: Make) -> None:
    later = GOOD | {"graphs_captured": [0] * 4}  # compiled at the first step alone
    assert exercised.check(facts_with(make_facts, ON, GOOD, later), Context()).outcome == "pass"


def test_nothing_is_expected_of_one_process_without_features(make_facts: Make) -> None:
    assert exercised.check(facts_with(make_facts, {}, {}, {}), Context()).outcome == "pass"


def test_selective_checkpointing_keeps_results_of_some_step(make_facts: Make) -> None:
    selective = ON | {"ac": "selective"}
    kept, none = GOOD | {"operators_kept": [6] * 4}, GOOD | {"operators_kept": [0] * 4}
    passed = exercised.check(facts_with(make_facts, selective, kept, none), Context())
    assert passed.outcome is Outcome.PASS, "compiled, they are counted in compiling alone"
    for steps in ((none, none), (GOOD | {"operators_kept": [6, 6, 0, 6]}, none)):
        failed = exercised.check(facts_with(make_facts, selective, *steps), Context())
        assert failed.outcome is Outcome.FAIL
        assert "checkpointing was not selective (operators_kept at step 1)" in failed.message


@pytest.mark.parametrize("counter", GOOD)
def test_a_counter_of_zero_fails_and_is_named(make_facts: Make, counter: str) -> None:
    off = GOOD | {counter: [0] * 4}
    finding = exercised.check(facts_with(make_facts, ON, off, off), Context())
    assert finding.outcome is Outcome.FAIL
    assert f"({counter} at step 1)" in finding.message
    assert finding.folder == "launches/1_train"


def test_one_rank_that_exchanged_nothing_at_one_step_fails(make_facts: Make) -> None:
    off = GOOD | {"cp_bytes_exchanged": [9, 9, 0, 9]}
    finding = exercised.check(facts_with(make_facts, ON, GOOD, off), Context())
    assert "context parallelism was off (cp_bytes_exchanged at step 2)" in finding.message


def test_ranks_that_each_see_the_whole_sequence_fail(make_facts: Make) -> None:
    off = GOOD | {"cp_sequence_share": [1.0] * 4}
    finding = exercised.check(facts_with(make_facts, ON, off), Context())
    assert "another share of the sequence than 1/cp" in finding.message


def test_a_trainer_without_counters_is_shown_and_not_failed(make_facts: Make) -> None:
    finding = exercised.check(facts_with(make_facts, {"cp": 4}, {}), Context())
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.advisory
    assert "cp_bytes_exchanged, cp_sequence_share" in finding.message


def test_a_model_that_every_rank_holds_whole_is_not_sharded(make_facts: Make) -> None:
    facts = facts_with(make_facts, {"dp_shard": 2}, {"params_sharded": [0, 0]})
    finding = exercised.check(facts, Context())
    assert (
        "every parameter whole: nothing was sharded (params_sharded at step 1)" in finding.message
    )


def test_fewer_ranks_than_asked_for_fail(make_facts: Make) -> None:
    facts = facts_with(make_facts, {"dp_shard": 4}, {"params_sharded": [50, 50]})
    assert "2 ranks trained, not 4" in exercised.check(facts, Context()).message


def test_ranks_that_draw_the_same_numbers_fail(make_facts: Make) -> None:
    facts = make_facts()
    facts.steps[2].rng_digests = ["a", "b", "a"]
    finding = exercised.check(facts, Context())
    assert finding.outcome is Outcome.FAIL
    assert "ranks 0 and 2 have the same random stream at step 3" in finding.message


def test_a_fault_that_nobody_asked_for_fails(make_facts: Make) -> None:
    facts = make_facts()
    facts.steps[0].fault = "dead_model"
    finding = exercised.check(facts, Context())
    assert finding.outcome is Outcome.FAIL
    assert "fault=dead_model was planted at step 1, and None asked for" in finding.message


def test_a_fault_that_was_asked_for_and_not_planted_fails(make_facts: Make) -> None:
    facts = make_facts()
    facts.case = facts.case.model_copy(update={"fault": "dead_model"})
    assert exercised.check(facts, Context()).outcome is Outcome.FAIL


def test_a_case_that_never_came_to_a_step_is_no_trainer_that_keeps_silent(make_facts: Make) -> None:
    crashed = make_facts([], exit_code=1).model_copy(update={"asked": {"cp": 4, "ep": 1}})
    finding = exercised.check(crashed, Context())
    assert (finding.outcome, finding.advisory) == (Outcome.INCONCLUSIVE, False)
    assert finding.message == "no step was reported"


@pytest.mark.parametrize(
    ("layout", "digests", "said"),
    [
        ((4, 1), {"batch_digests": ["a", "b", "c", "d"]}, ""),
        ((4, 1), {"batch_digests": ["a", "b", "a", "d"]}, "ranks 0 and 2 train the same rows"),
        ((1, 4), {"sequence_digests": ["a", "a", "a", "a"]}, ""),
        ((1, 4), {"sequence_digests": ["a", "a", "b", "a"]}, "rank 2 has others than the rest"),
        ((2, 2), {"sequence_digests": ["a", "a", "b", "b"]}, ""),
        ((2, 2), {"sequence_digests": ["a", "a", "a", "a"]}, "ranks 0 and 1 and 2 and 3 train"),
        ((2, 2), {"sequence_digests": ["a", "a", "b", "c"]}, "rank 2 has others than the rest"),
        ((2, 2), {"batch_digests": ["pad", "b", "pad", "c"]}, ""),  # slices: they may be equal
        ((2, 1), {"batch_digests": []}, ""),
    ],
)
def test_each_group_of_ranks_trains_rows_of_its_own(
    make_facts: Make, layout: tuple[int, int], digests: dict[str, list[str]], said: str
) -> None:
    facts = make_facts([Step(step=n, loss=2.0, grad_norm=1.0, **digests) for n in (1, 2)])
    facts.asked = {"dp_shard": layout[0], "cp": layout[1], "ep": 1, "not_shown": []}
    finding = exercised.check(facts, Context())
    assert (finding.outcome is Outcome.FAIL) == bool(said)
    if said:
        assert finding.message.startswith("train: ")
        assert said in finding.message
        assert "at step 1" in finding.message
