from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep import facts as facts_file
from sweep.errors import RequestError
from sweep.facts import Facts, Step


def test_a_case_compiled_as_long_as_its_slowest_rank(make_facts: Callable[..., Facts]) -> None:
    def step(number: int, *seconds: float) -> Step:
        counters = {"compile_seconds": list(seconds)} if seconds else {}
        return Step(step=number, loss=1.0, grad_norm=1.0, counters=counters)

    assert make_facts([step(1, 4.0, 5.0), step(2, 0.0, 0.5)]).compile_seconds == 5.5
    assert make_facts([step(1)]).compile_seconds is None


@pytest.mark.parametrize(
    ("exit_code", "timed_out", "ended_well"),
    [
        (0, False, True),
        (0, True, False),
        (1, False, False),
        (-9, True, False),
        (None, False, False),
    ],
)
def test_a_launch_ended_well_with_code_0_and_by_itself(
    make_facts: Callable[..., Facts], exit_code: int | None, timed_out: bool, ended_well: bool
) -> None:
    [launch] = make_facts(exit_code=exit_code, timed_out=timed_out).launches
    assert launch.ended_well is ended_well


def test_figures_that_are_not_finite_survive_the_disk(
    tmp_path: Path, make_facts: Callable[..., Facts]
) -> None:
    wild = Step.model_validate(
        {"step": 1, "loss": math.nan, "grad_norm": math.inf, "counters": {"x": -math.inf}}
    )
    facts_file.save(make_facts([wild]), tmp_path)
    loaded = facts_file.load(tmp_path)
    assert loaded is not None
    step = loaded.steps[0]
    assert math.isnan(step.loss)
    assert step.grad_norm == math.inf
    assert step.counters == {"x": -math.inf}


def test_no_facts_yet_is_none(tmp_path: Path) -> None:
    assert facts_file.load(tmp_path) is None


@given(st.lists(st.floats(allow_nan=True), min_size=1, max_size=5))
def test_losses_are_read_as_python_writes_them(losses: list[float]) -> None:
    for loss in losses:
        line = json.dumps({"step": 1, "loss": loss, "grad_norm": 1.0})
        read_back = Step.model_validate_json(line).loss
        assert read_back == loss or (math.isnan(read_back) and math.isnan(loss))


def test_what_all_ranks_found_compiled_is_summed(make_facts: Callable[..., Facts]) -> None:
    def step(number: int, **counters: list[int]) -> Step:
        return Step(step=number, loss=1.0, grad_norm=1.0, counters=counters)

    counted = [step(1, compile_cache_hits=[1, 2], compile_cache_misses=[3, 0]),
               step(2, compile_cache_hits=[0, 1], compile_cache_misses=[0, 0])]  # fmt: skip
    assert make_facts(counted).compile_cache == (4, 3)
    assert make_facts([step(1)]).compile_cache is None


@pytest.mark.parametrize(
    ("counted", "seconds"),
    [
        ([4.0, 0.5], 4.5),
        ([[4.0, 5.0], [1.0]], 5.0),
        ([[math.nan, 1.0], ["?"]], 1.0),
        (["no"], None),
    ],
)
def test_a_trainer_may_count_as_it_likes(
    make_facts: Callable[..., Facts], counted: list[object], seconds: float | None
) -> None:
    steps = [
        Step(step=n, loss=1.0, grad_norm=1.0, counters={"compile_seconds": one})
        for n, one in enumerate(counted, start=1)
    ]
    assert make_facts(steps).compile_seconds == seconds


def test_facts_of_an_earlier_schema_are_read_without_an_identity(
    tmp_path: Path, make_facts: Callable[..., Facts]
) -> None:
    facts_file.save(make_facts(), tmp_path)
    path = tmp_path / "facts.json"
    values = json.loads(path.read_text())
    del values["identity"]
    path.write_text(json.dumps(values | {"schema_version": 1}))
    loaded = facts_file.load(tmp_path)
    assert loaded is not None
    assert (loaded.schema_version, loaded.identity) == (facts_file.SCHEMA, None)


@pytest.mark.parametrize(("version", "said"), [(99, "is newer than"), (0, "schema_version")])
def test_facts_of_another_schema_are_refused_in_one_line(
    tmp_path: Path, make_facts: Callable[..., Facts], version: int, said: str
) -> None:
    facts_file.save(make_facts(), tmp_path)
    path = tmp_path / "facts.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": version}))
    with pytest.raises(RequestError, match=said) as refused:
        facts_file.load(tmp_path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)
