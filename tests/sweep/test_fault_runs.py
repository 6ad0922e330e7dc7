"""Faults planted for real, through the sweep: the checks meant for them see them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.nightly import representatives
from tests.sweep.commands import sweep

pytestmark = pytest.mark.slow
CAUGHT = {  # the first of each check runs with each change
    "embeddings_untied": "parity",
    "packing_boundaries_lost:1": "parity",
    "dead_model:0": "alive",
    "masked_row_nan": "finite",
    "resume_step_counter:1": "resume",
    "resume_data_skip_one:1": "resume",
    "shard_truncated:0.99": "exit",
    "export_older_step:0.05": "export",
    "export_tied_stale": "export",
    "export_tensor_left_out:1": "export",
}
CONTROL = ("masked_row_nan", "shard_truncated")


FIRST = [next(fault for fault in CAUGHT if CAUGHT[fault] == check) for check in CAUGHT.values()]


@pytest.fixture(scope="module")
def detected(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Any]:
    """Fault -> its row of the detection table, from one sweep of those that a test asks for."""
    outputs = tmp_path_factory.mktemp("outputs")
    asked = [
        item.callspec.params["fault"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and "detected" in item.fixturenames
    ]
    done = sweep(
        f"outputs={outputs}", "-m", "suite=faults", "arch=llama", "layout=single",
        "feature=none,none_resume", f"fault=null,{','.join(asked)}", "steps=4", seconds=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "false alarm" not in done.stderr
    rows = json.loads(next(outputs.glob("*/detection.json")).read_text())
    return {f"{row['fault']}:{row['strength']}".rstrip(":"): row for row in rows}


@pytest.mark.parametrize("fault", representatives(CAUGHT, *FIRST))
def test_a_planted_fault_is_caught_by_the_check_meant_for_it(
    detected: Mapping[str, Any], fault: str
) -> None:
    row = detected[fault]
    assert CAUGHT[fault] in row["caught_by"]
    assert row["control"] == (row["fault"] in CONTROL)
    if CAUGHT[fault] == "export":  # training is right: nothing else can see it
        assert row["caught_by"] == ["export"]


def test_a_fault_that_is_none_is_one_line_before_anything_runs(tmp_path: Path) -> None:
    arguments = ("arch=llama", "layout=single", "feature=none", "fault=nonsense", "steps=1")
    done = sweep(f"outputs={tmp_path}", *arguments)
    assert done.returncode == 2
    assert "there is no such fault: python -m sft.faults lists them" in done.stderr
    assert not list(tmp_path.glob("20*"))


def test_another_trainer_has_no_faults(tmp_path: Path) -> None:
    arguments = ("arch=llama", "layout=single", "trainer=command", "trainer.argv=[x]")
    done = sweep(f"outputs={tmp_path}", *arguments, "fault=dead_model")
    assert done.returncode == 2
    said = "trainer=command is not told of fault=dead_model; trainer=sft is"
    assert said in " ".join((done.stdout + done.stderr).split())
