"""What plain transformers makes of an exported checkpoint, and what is wrong with its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import tiny_models
from oracle import batches, export, steps, ties
from oracle.batches import Document
from oracle.settings import Settings

Tensors = dict[str, Tensor]
Write = Callable[..., Path]
TIED, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
ROW = {
    "step": 1, "row": "0", "input_ids": [5, 6, 7, 8, 9, 10], "labels": [6, 7, -100, 9, 10, -100],
    "position_ids": [0, 1, 2, 0, 1, 2],
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def checkpoint() -> Path:
    """Whose embeddings are tied."""
    return Path(tiny_models.ensure("llama", "nano", 0))


@pytest.fixture
def ask(
    checkpoint: Path, tmp_path: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """A function that exports the checkpoint itself, changed, and returns what is said of it."""

    def asked(change: Callable[[Tensors], object] = len, after: int = 1) -> dict[str, Any]:
        folder = tmp_path / "export"
        shutil.copytree(checkpoint, folder)
        (path,) = folder.glob("*.safetensors")
        tensors = load_file(path)
        change(tensors)
        save_file(tensors, path, metadata={"format": "pt"})
        taps = write(ROW, ROW | {"step": 2})
        assert export.main([str(folder), str(checkpoint), str(taps), "--after", str(after)]) == 0
        said: dict[str, Any] = json.loads(capsys.readouterr().out)
        return said

    return asked


def test_the_checkpoint_itself_gives_the_loss_of_a_step(
    ask: Callable[..., dict[str, Any]], checkpoint: Path, write: Write
) -> None:
    said = ask()
    assert (said["step"], said["problems"]) == (2, [])
    first = batches.read([write(ROW, name="first/batches.jsonl")])
    (figures,) = steps.compute(checkpoint, first, Settings(), "cpu")
    assert said["loss"] == pytest.approx(figures["loss"], rel=1e-12)


def test_a_copy_of_a_tied_weight_is_nothing_wrong(ask: Callable[..., dict[str, Any]]) -> None:
    assert ask(lambda tensors: tensors.update({TIED: tensors[EMBEDDING].clone()}))["problems"] == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda tensors: tensors.update({TIED: tensors[EMBEDDING] * 1.001}),
            "lm_head.weight is not in the checkpoint, nor a copy of a tied weight",
        ),
        (lambda tensors: tensors.pop("model.norm.weight"), "model.norm.weight is missing"),
        (
            lambda tensors: tensors.update({"model.norm.weight": torch.ones(3)}),
            "model.norm.weight has the shape [3], [128] in the checkpoint",
        ),
        (lambda tensors: tensors.update(more=torch.ones(3)), "unexpected_keys"),
    ],
)
def test_other_keys_and_shapes_are_named(
    ask: Callable[..., dict[str, Any]], change: Callable[[Tensors], object], problem: str
) -> None:
    said = ask(change)
    assert any(problem in one for one in said["problems"]), said
    assert said["wrong"] == len(said["problems"]) > 0


def test_a_key_in_two_files_is_named(checkpoint: Path, tmp_path: Path) -> None:
    from oracle import exported

    folder = tmp_path / "export"
    shutil.copytree(checkpoint, folder)
    save_file({"model.norm.weight": torch.ones(128)}, folder / "more.safetensors")
    assert "model.norm.weight is there 2 times" in list(exported.other_keys(folder, checkpoint))


def test_other_weights_give_another_loss(ask: Callable[..., dict[str, Any]]) -> None:
    def scaled(tensors: Tensors) -> None:
        tensors["model.norm.weight"] *= 1.01

    said = ask(scaled)
    assert said["problems"] == []
    assert said["loss"] != pytest.approx(8.0, rel=1e-9)


def test_a_close_pick_falls_as_the_reported_loss_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from oracle import exported
    from oracle import model as models

    class Picking:
        device = torch.device("cpu")

    def loss_of_pick(_model: Any, _document: Document, _device: Any) -> Tensor:
        picked = torch.topk(torch.tensor([1.0, 1.0 - 1e-7]), 1).indices
        return picked.sum().float()

    monkeypatch.setattr(models, "loss_sum", loss_of_pick)
    documents = [Document((5, 6), (6, -100))]
    assert exported.loss(Picking(), documents, None)["loss"] == 0.0
    said = exported.loss(Picking(), documents, 1.0)
    assert (said["loss"], said["turned_picks"], said["close_picks"]) == (1.0, 1, 1)


@pytest.mark.parametrize(
    ("after", "folder", "said"),
    [
        (2, "checkpoint", "--after 2: there is no batch of step 3"),
        (1, "nowhere", "has no *.safetensors file; did the trainer export it?"),
    ],
)
def test_a_request_that_cannot_be_answered_is_one_line(
    after: int, folder: str, said: str, checkpoint: Path, tmp_path: Path, write: Write,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    asked = checkpoint if folder == "checkpoint" else tmp_path / folder
    taps = write(ROW, ROW | {"step": 2})
    assert export.main([str(asked), str(checkpoint), str(taps), "--after", str(after)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_an_answer_that_cannot_be_written_is_one_line(
    checkpoint: Path, write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [str(checkpoint), str(checkpoint), str(write(ROW)), "--after", "0"]
    assert export.main([*asked, "--out", str(tmp_path / "no" / "answer.json")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("oracle.export: ")
    assert "cannot be written" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("dtype", "told"), [("float32", {"loss": 9.0}), ("bfloat16", None)])
def test_rounding_in_bfloat16_is_not_explained_by_picks(
    checkpoint: Path, write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    dtype: str, told: object,
) -> None:  # fmt: skip
    reported: list[object] = []

    def settled(run: Callable[[Any], Any], known: object) -> Any:
        reported.append(known)
        return (), run(())

    monkeypatch.setattr(ties, "settled", settled)
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"dtype": dtype}), encoding="utf-8")
    asked = [str(checkpoint), str(checkpoint), str(write(ROW)), "--after", "0", "--loss", "9.0"]
    assert export.main([*asked, "--settings", str(settings)]) == 0
    assert reported == [told]
