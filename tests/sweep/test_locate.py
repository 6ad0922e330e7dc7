"""Each stage in which two runs can part is told, on a trainer that only imports the taps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sweep.locate import parameters as ours
from sweep.locate.difference import between
from sweep.locate.place import OUTSIDE, WHOLE, Place, module_of
from sweep.locate.reading import INTEGERS, Key, Run
from sweep.locate.search import Search
from tests.sweep.tapped import Model, Training, train

Locate = Callable[[Training], Place | None]


@pytest.fixture
def locate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Locate:
    """Where a training parts from the right one."""

    def first(ours: Training, **right: Any) -> Place | None:
        reference = Training(**right)
        theirs = train(reference, tmp_path / "theirs", monkeypatch)
        again = train(reference, tmp_path / "again", monkeypatch, TAPS_ROUNDING="1")
        mine = train(ours, tmp_path / "ours", monkeypatch)
        return Search(Run(mine), Run(theirs), Run(again), is_sharded=False).first()

    return first


def scaled(module: nn.Module, factor: float) -> None:
    module.register_forward_hook(lambda _module, _inputs, out: out * factor)


def test_two_runs_that_compute_the_same_part_nowhere(locate: Locate) -> None:
    assert locate(Training()) is None


def test_rounding_alone_is_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        Run(train(Training(), tmp_path / seed, monkeypatch, TAPS_ROUNDING=seed)) for seed in "123"
    ]
    assert Search(*runs, is_sharded=False).first() is None


def test_recomputation_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once = Run(train(Training(), tmp_path / "once", monkeypatch)).step(1)
    twice = Run(train(Training(recomputes=True), tmp_path / "twice", monkeypatch)).step(1)
    kinds = ("in", "out", "grad_in", "grad_out")
    assert set(once.of(kinds)) == set(twice.of(kinds))
    assert all(np.array_equal(once.modules[key], twice.modules[key]) for key in once.of(kinds))
    assert twice.of(("again",))
    assert not once.of(("again",))


def test_other_tokens_are_a_difference_of_the_data(locate: Locate) -> None:
    place = locate(Training(change_rows=lambda rows: torch.cat([rows[:2], rows[:1] * 0])))
    assert place is not None
    assert (place.step, place.stage, place.module) == (1, "data", OUTSIDE)
    assert place.where == "row 0.2"


def test_rows_in_another_order_are_the_same_data(locate: Locate) -> None:
    assert locate(Training(change_rows=lambda rows: rows.flip(0))) is None


def test_another_weight_is_a_difference_of_the_state(locate: Locate) -> None:
    def spoil(model: Model) -> None:
        model.layers[1].mix.weight.data[3, 2] += 1e-3

    place = locate(Training(spoil=spoil))
    assert place is not None
    assert (place.stage, place.module) == ("state", "layers.1.mix")
    assert "row 3" in place.where


@pytest.mark.parametrize("factor", [2.0, 1 + 1e-4, float("nan")])
def test_a_module_that_computes_something_else_is_found(locate: Locate, factor: float) -> None:
    place = locate(Training(spoil=lambda model: scaled(model.layers[1].norm, factor)))
    assert place is not None
    assert (place.step, place.stage, place.module) == (1, "forward", "layers.1.norm")
    assert place.inputs_agree
    assert place.tokens == 18
    assert place.rank == 0


def test_what_a_layer_does_between_its_modules_is_the_layers(locate: Locate) -> None:
    def before(_module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (inputs[0] * 1.01,)

    def spoil(model: Model) -> None:
        model.layers[0].mix.register_forward_pre_hook(before)

    place = locate(Training(spoil=spoil))
    assert place is not None
    assert (place.stage, place.module) == ("forward", "layers.0")
    assert "what it hands to mix" in place.what


def test_another_loss_is_outside_of_the_model(locate: Locate) -> None:
    place = locate(Training(loss_scale=1.01))
    assert place is not None
    assert (place.step, place.stage, place.module) == (1, "loss", OUTSIDE)


def test_a_wrong_gradient_is_found_in_backward(locate: Locate) -> None:
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(_ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(_ctx: Any, gradient: Tensor) -> Tensor:
            return gradient / 2

    def spoil(model: Model) -> None:
        inner = model.layers[0].mix.forward
        model.layers[0].mix.forward = lambda x: inner(Half.apply(x))

    place = locate(Training(spoil=spoil))
    assert place is not None
    assert (place.stage, place.module) == ("backward", "layers.0.mix")


def test_a_layer_that_is_computed_otherwise_again_is_found(locate: Locate) -> None:
    calls = iter(range(100))

    def noisy(_module: nn.Module, _inputs: Any, out: Tensor) -> Tensor:
        return out + 1e-3 * (next(calls) % 2)  # the second time

    def spoil(model: Model) -> None:
        model.layers[1].norm.register_forward_hook(noisy)

    place = locate(Training(spoil=spoil, recomputes=True))
    assert place is not None
    assert (place.stage, place.module) == ("backward", "layers.1.norm")
    assert "computed again" in place.what


def test_a_gradient_changed_after_backward_is_its_parameters(locate: Locate) -> None:
    def double(model: Model) -> None:
        model.layers[1].mix.weight.grad *= 2

    place = locate(Training(before_step=double))
    assert place is not None
    assert (place.stage, place.module) == ("backward", "layers.1.mix")
    assert "after backward" in place.what


def test_another_clipping_is_the_optimizers(locate: Locate) -> None:
    place = locate(Training(clip=0.1), clip=0.2)
    assert place is not None
    assert (place.stage, place.module) == ("optimizer", WHOLE)
    assert "0.5 times" in place.what


def test_another_learning_rate_is_named(locate: Locate) -> None:
    place = locate(Training(lr=2e-2))
    assert place is not None
    assert (place.stage, place.module) == ("optimizer", WHOLE)
    assert place.what == "lr is 0.02, in the reference 0.01"


def test_a_parameter_in_no_group_is_named(locate: Locate) -> None:
    def freeze(model: Model) -> None:
        weight = nn.Parameter(model.head.weight.detach().clone())
        model.before = [weight]  # the optimizer owns one that is not used
        parameters = [weight if p is model.head.weight else p for p in model.parameters()]
        model.parameters = lambda: iter(parameters)

    place = locate(Training(spoil=freeze))
    assert place is not None
    assert (place.stage, place.module) == ("optimizer", "head")
    assert place.what == "it is in no group of the optimizer"


def test_a_run_that_does_not_begin_where_it_should_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(train(Training(), tmp_path, monkeypatch))
    place = Search(run, run, None, is_sharded=False, begins=2).first()
    assert place is not None
    assert (place.stage, place.module) == ("state", WHOLE)
    assert place.what == "it begins at step 1, and should at step 2"


def test_a_trainer_that_shows_no_rows_is_looked_into_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(train(Training(shows=False), tmp_path, monkeypatch))
    assert run.steps == [1, 2]
    step = run.step(2)
    assert len(step.tokens.places) == 18
    assert not np.isnan(step.modules[Key("out", "layers.0.norm", call=1)]).any()


def test_nothing_is_done_unless_the_environment_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taps = train(Training(), tmp_path, monkeypatch, TAPS_INSIDE="")
    assert [path.name for path in taps.iterdir()] == ["batches-0.jsonl"]


def test_slices_of_a_row_are_lined_up_whatever_rank_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(Training(steps=1), tmp_path / "whole", monkeypatch)
    split = _split_in_two(whole, tmp_path / "split")
    one, two = Run(whole).step(1), Run(split).step(1)
    assert one.tokens.documents == two.tokens.documents
    for key, values in one.modules.items():
        assert np.array_equal(values, two.modules[key])
    assert set(two.ranks.tolist()) == {0, 1}


def _split_in_two(whole: Path, folder: Path) -> Path:
    """As two ranks would have written it, each with half of every row."""
    folder.mkdir()
    lines = [json.loads(line) for line in (whole / "batches-0.jsonl").read_text().splitlines()]
    content = torch.load(whole / "inside-0-1.pt", weights_only=True)
    head = json.loads(content["head"])
    (places,) = [
        tensor
        for record, tensor in zip(head["records"], content["tensors"], strict=True)
        if record["kind"] == "tokens"
    ]
    for rank, half in enumerate((slice(0, 3), slice(3, 6))):
        keys = ("input_ids", "labels", "position_ids")
        cut = [line | {key: line[key][half] for key in keys} for line in lines]
        text = "".join(json.dumps(line | {"start": half.start}) + "\n" for line in cut)
        (folder / f"batches-{rank}.jsonl").write_text(text)
        mine = (places[:, 1] >= half.start) & (places[:, 1] < half.stop)
        tensors = [
            tensor[mine] if record["forward"] else tensor
            for record, tensor in zip(head["records"], content["tensors"], strict=True)
        ]
        torch.save(
            {"head": json.dumps(head | {"rank": rank}), "tensors": tensors},
            folder / f"inside-{rank}-1.pt",
        )
    return folder


def test_gradients_of_ranks_whose_mean_is_taken_are_compared_as_their_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taps = train(Training(steps=1, loss_scale=2.0), tmp_path / "ours", monkeypatch)
    content = torch.load(taps / "inside-0-1.pt", weights_only=True)
    head = json.loads(content["head"]) | {"divisor": 2}
    torch.save(content | {"head": json.dumps(head)}, taps / "inside-0-1.pt")
    right = Run(train(Training(steps=1), tmp_path / "theirs", monkeypatch))
    place = Search(Run(taps), right, None, is_sharded=True).first()
    assert place is not None
    assert place.stage == "reduction"  # the parameters' gradients are twice as long


@pytest.mark.parametrize(
    ("names", "module"),
    [
        (["layers.0.a.weight"], "layers.0.a"),
        (["layers.0.a.weight", "layers.0.b.weight"], "layers.0"),
        (["layers.1.a.weight", "layers.2.a.weight"], "layers.1.a"),
        (["embed.weight", "layers.1.a.weight", "layers.2.a.weight"], WHOLE),
        (["embed.weight", "layers.0.a.weight"], "embed"),
        (["weight"], WHOLE),
    ],
)
def test_the_module_of_several_parameters(names: list[str], module: str) -> None:
    assert module_of(names) == module


def test_a_difference_must_be_beyond_what_rounding_does() -> None:
    key, right = Key("out", "x"), np.ones((10, 5), dtype=np.float32)
    noisy = right + np.float32(1e-4)
    assert between(key, right + np.float32(2e-4), right, noisy) is None
    found = between(key, right + np.float32(2e-4), right, None)
    assert found is not None
    assert found.size == pytest.approx(2e-4, rel=0.01)
    assert len(found.rows) == 10


def test_the_options_are_those_that_the_taps_write() -> None:
    from sweep_taps import modules, parameters

    assert ours.OPTIONS == parameters.OPTIONS
    assert ours.MOMENTS == parameters.STATES
    assert all(kind.endswith(modules.WHOLE_NUMBERS) for kind in INTEGERS)
