"""Picks that rounding may turn fall as the trainer's figures say, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

import tiny_models
from oracle import batches, steps, ties
from oracle.errors import OracleError
from oracle.settings import Settings
from oracle.ties import Run, Turned

REPORTED = {"step": 1, "loss": 1.0, "grad_norm": 2.0}


class Step:
    """A step with three close picks in two documents, each of which changes the loss its way."""

    CHANGES: ClassVar = {(0, 0): 1e-4, (0, 1): 2e-5, (3, 0): -3e-6}

    def __init__(self) -> None:
        self.runs: list[Turned] = []

    def __call__(self, turned: Turned) -> Run:
        self.runs.append(turned)
        loss = 1.0 + sum(self.CHANGES[pick] for pick in turned)
        return {"loss": loss}, {0: 2, 3: 1}, (2.0, {"mlp": 2.0})


def test_figures_that_agree_or_are_not_there_turn_nothing() -> None:
    for reported in (None, {}, REPORTED, {"loss": 1.0 + 1e-7}):
        step = Step()
        assert ties.settled(step, reported)[0] == ()
        assert step.runs == [()]


@pytest.mark.parametrize(
    "turned", [((0, 0),), ((0, 1),), ((3, 0),), ((0, 0), (0, 1)), ((0, 0), (0, 1), (3, 0))]
)
def test_the_picks_that_explain_the_trainers_figures_are_turned(turned: Turned) -> None:
    step = Step()
    loss = 1.0 + sum(Step.CHANGES[pick] for pick in turned)
    settled, run = ties.settled(step, REPORTED | {"loss": loss})
    assert set(settled) == set(turned)
    assert run[0]["loss"] == pytest.approx(loss, rel=1e-9)
    assert step.runs[-1] == settled, "the model has another gradient"


def test_what_no_pick_explains_stays_far() -> None:
    step = Step()
    settled, run = ties.settled(step, REPORTED | {"loss": 0.9})
    assert abs(run[0]["loss"] - 0.9) > 0.09
    assert step.runs[-1] == settled
    settled, _ = ties.settled(lambda turned: ({"loss": 1.0}, {}, (2.0, {})), {"loss": 0.9})
    assert settled == ()


def test_a_gradient_norm_that_is_off_counts() -> None:
    run: Run = ({"loss": 1.0}, {0: 1}, (2.0, {}))
    assert ties.distance(run, {"loss": 1.0, "grad_norm": 2.0}) == 0
    assert ties.distance(run, {"loss": 1.0, "grad_norm": 2.1}) > 1
    assert ties.distance(run, {"loss": 1.0, "grad_norm": None}) == 0


@pytest.mark.parametrize(("dtype", "expected"), [("float32", {"loss": 1.0}), ("bfloat16", None)])
def test_rounding_in_bfloat16_is_not_explained_by_picks(
    write: Callable[..., Path],
    row: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    dtype: str,
    expected: object,
) -> None:
    told: list[object] = []

    def settled(run: Callable[[Turned], Run], reported: object) -> tuple[Turned, Run]:
        told.append(reported)
        return (), run(())

    monkeypatch.setattr(ties, "settled", settled)
    checkpoint, trained = tiny_models.ensure("llama", "nano", 0), batches.read([write(row())])
    list(steps.compute(checkpoint, trained, Settings(dtype=dtype), "cpu", {1: {"loss": 1.0}}))
    assert told == [expected]


def test_reported_figures_are_read_by_step(tmp_path: Path) -> None:
    path = tmp_path / "reported.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.5}\n', encoding="utf-8")
    assert ties.read(path)[2]["loss"] == 1.5
    path.write_text("step 1", encoding="utf-8")
    with pytest.raises(OracleError, match="is not lines of"):
        ties.read(path)
    with pytest.raises(OracleError, match="cannot be read"):
        ties.read(tmp_path / "none")
