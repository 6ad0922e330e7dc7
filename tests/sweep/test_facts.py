from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from sweep import facts as facts_file
from sweep.facts import Facts, Step, read_metrics

GOOD = '{"step": 1, "loss": 2.5, "grad_norm": 1, "lr": 1e-4, "tokens": 10}'


def read(tmp_path: Path, text: str) -> facts_file.Metrics:
    (tmp_path / "metrics.jsonl").write_text(text)
    return read_metrics(tmp_path / "metrics.jsonl")


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


def test_lines_that_are_no_step_are_told_apart_and_the_others_kept(tmp_path: Path) -> None:
    metrics = read(tmp_path, f'{GOOD}\n\nnot json\n{{"step": 2}}\n{{"step": 3, "lo')
    assert [step.step for step in metrics.steps] == [1]
    assert [bad.partition(":")[0] for bad in metrics.bad_lines] == ["line 3", "line 4", "line 5"]
    assert "loss: Field required" in metrics.bad_lines[1]


def test_what_a_trainer_says_beyond_the_known_is_kept(tmp_path: Path) -> None:
    step = read(tmp_path, GOOD[:-1] + ', "aux_loss": 0.5}').steps[0]
    assert step.model_dump()["aux_loss"] == 0.5


def test_a_step_number_that_is_text_is_no_step(tmp_path: Path) -> None:
    assert read(tmp_path, GOOD.replace('"step": 1', '"step": "1"')).steps == []


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "metrics.jsonl"
        path.write_text(text, encoding="utf-8", newline="")
        metrics = read_metrics(path)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert len(metrics.bad_lines) == sum(bool(line.strip()) for line in lines)


@given(st.lists(st.floats(allow_nan=True), min_size=1, max_size=5))
def test_losses_are_read_as_python_writes_them(losses: list[float]) -> None:
    for loss in losses:
        line = json.dumps({"step": 1, "loss": loss, "grad_norm": 1.0})
        read_back = Step.model_validate_json(line).loss
        assert read_back == loss or (math.isnan(read_back) and math.isnan(loss))
