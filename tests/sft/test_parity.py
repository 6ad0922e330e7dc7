"""Every layout of every architecture computes what one process computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tiny_models
from scripts import parity_table
from scripts.parity_table import Difference
from sweep.checks import thresholds


@pytest.mark.slow
@pytest.mark.usefixtures("warm_ranks")
@pytest.mark.parametrize("arch", tiny_models.names())
def test_layouts_agree_with_one_process_on_losses_and_gradients(arch: str, tmp_path: Path) -> None:
    rows = list(parity_table.compare(arch, tmp_path))
    assert {row.layout for row in rows} == set(parity_table.layouts_of(arch))
    assert not any(row.beyond() for row in rows), parity_table.table(rows)
    assert max(row.loss_after for row in rows) < parity_table.limit_after()


def test_a_difference_names_the_step_group_and_size() -> None:
    single = [record(1.0, 2.0)] * parity_table.STEPS
    wrong = [record(1.0, 2.0)] * (parity_table.STEPS - 1) + [record(1.0, 2.2)]
    row = parity_table.difference("qwen3_moe", "cp4_ep4", wrong, single)
    assert (row.loss, row.worst_group) == (0.0, "router")
    assert row.groups["router"] == pytest.approx(0.1)
    assert row.beyond() == ["router"]


def test_the_bounds_are_those_of_the_check_parity() -> None:
    loss, grad_norm = (
        thresholds.of("parity", figure, "cpu", "float32").value for figure in ("loss", "grad_norm")
    )
    assert parity_table.limit("llama", "loss") == parity_table.limit("qwen4_exp", "loss") == loss
    assert (
        parity_table.limit("llama", "grad_norm") == parity_table.limit("llama", "norm") == grad_norm
    )
    assert parity_table.limit("qwen4_exp", "router") == 1e-3
    assert parity_table.limit("qwen4_exp", "embedding") == 1e-2
    assert parity_table.limit_after() == 1e-3


def test_different_batches_are_never_compared() -> None:
    single = [record(1.0, 2.0)] * parity_table.STEPS
    other = [single[0] | {"global_batch_digest": "other"}] * parity_table.STEPS
    with pytest.raises(AssertionError, match="different batches"):
        parity_table.difference("llama", "cp4_ep4", other, single)


def test_steps_after_another_choice_of_experts_are_told_apart() -> None:
    single = [record(1.0, 2.0) for _ in range(parity_table.STEPS)]
    flipped = [*single[:3], *(record(1.001, 2.1, 8.0) for _ in single[3:])]
    row = parity_table.difference("qwen3_moe", "cp4_ep4", flipped, single)
    assert (row.beyond(), row.same_choices) == ([], 3)
    assert row.loss_after == pytest.approx(1e-3)
    assert "from step 4" in parity_table.table([row])


def test_another_choice_at_the_first_step_is_no_rounding() -> None:
    single = [record(1.0, 2.0) for _ in range(parity_table.STEPS)]
    wrong = [record(1.0, 2.0, 8.0) for _ in single]
    with pytest.raises(parity_table.AnotherChoiceError, match="at the first step"):
        parity_table.difference("qwen3_moe", "cp4_ep4", wrong, single)


def test_a_tie_on_one_order_of_the_data_is_passed_over_and_a_fault_on_every_one_is_not() -> None:
    row = Difference("qwen3_moe", "cp4_ep4", 0, 0, {})

    def tied_until(good: int) -> Callable[[int], Difference]:
        def on_data(seed: int) -> Difference:
            if seed < good:
                raise parity_table.AnotherChoiceError("at the first step")
            return row

        return on_data

    assert parity_table.first_comparable(tied_until(1)) is row
    with pytest.raises(parity_table.AnotherChoiceError):
        parity_table.first_comparable(tied_until(parity_table.ORDERS))


def test_a_dense_case_is_named_by_the_expert_degree_it_runs_with() -> None:
    assert parity_table.case_id(Difference("llama", "cp4_ep4", 0, 0, {})) == "llama-cp4_ep1"


def record(loss: float, router: float, choices: float = 7.0) -> dict[str, object]:
    return {
        "counters": {"choices_fingerprint": [choices, 1.0]},
        "loss": loss,
        "grad_norm": 1.0,
        "grad_norm_groups": {"norm": 1.0, "router": router},
        "global_batch_digest": "same",
    }
