"""Every layout of every architecture computes what one process computes; docs/parity.md."""

from __future__ import annotations

from pathlib import Path

import pytest

import tiny_models
from scripts import parity_table
from sweep.errors import RequestError
from sweep.facts import Metrics, Step
from tests.nightly import representatives
from tests.sweep.commands import sweep
from tests.sweep.confs import limits
from tests.sweep.report.conftest import MakeResult


@pytest.mark.slow
@pytest.mark.parametrize("arch", representatives(tiny_models.names(), "llama", "qwen3_moe"))
def test_layouts_agree_with_one_process_on_losses_and_gradients(arch: str, tmp_path: Path) -> None:
    ended = sweep("-m", "suite=parity", f"arch={arch}", f"outputs={tmp_path}", seconds=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def steps(changed: float = 0.0, other_choice_from: int = 6) -> Metrics:
    return Metrics(
        steps=[
            Step(
                step=n,
                loss=2.0 + changed,
                grad_norm=1.0 + changed,
                global_batch_digest="same",
                grad_norm_groups={"norm": 1.0, "router": 1.0 + 2 * changed},
                counters={"choices_fingerprint": [8.0 if n >= other_choice_from else 7.0]},
            )
            for n in range(1, 6)
        ]
    )


def test_the_page_has_the_worst_group_of_each_layout_and_where_choices_differ(
    make_result: MakeResult,
) -> None:
    single = make_result("llama", "single", "none", metrics=steps())
    near = make_result("llama", "cp4_ep1", "none", metrics=steps(1e-3))
    tie = make_result("llama", "fsdp4_ep1", "none", metrics=steps(1e-3, other_choice_from=4))
    text = parity_table.page([single, near, tie], limits())
    assert "\n| llama-cp4_ep1-none | 5.0e-04 | 1.0e-03 | router | 2.0e-03 | none |\n" in text
    assert (
        "\n| llama-fsdp4_ep1-none | 5.0e-04 | 1.0e-03 | router | 2.0e-03 | from step 4: loss"
        " 5.0e-04 |\n" in text
    )
    assert "| llama-single-none" not in text


def test_a_sweep_without_a_result_has_no_page() -> None:
    with pytest.raises(RequestError, match="run suite=parity first"):
        parity_table.page([], limits())
