"""What the trainer exports is the model that it trains, as plain transformers names it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from sft import export, faults
from sft.config import CheckpointConfig, Config, DataConfig, ModelConfig
from sft.errors import ConfigError
from sft.faults.catalogue import FAULTS
from sft.faults.patching import Plant
from sft.loop import Trainer
from sft.ranks import Ranks
from sft.report.metrics import read as records

ALONE = Ranks(0, 1, torch.device("cpu"))
Checkpoint = Callable[[str], Path]


def config(model: Path, out: Path, **more: object) -> Config:
    """Two steps, exported after the first."""
    found = Config(
        model=ModelConfig(path=str(model)),
        data=DataConfig(seq_len=128, global_batch=2),
        checkpoint=CheckpointConfig(export_at=[1]),
        steps=2,
        output_dir=str(out),
    )
    for name, value in more.items():
        setattr(found, name, value)
    return found


def exported(out: Path) -> dict[str, Tensor]:
    (path,) = export.folder(str(out), 1).glob("*.safetensors")
    return load_file(path)


def test_an_export_has_the_keys_of_the_checkpoint_and_the_weights_after_its_step(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    source = checkpoint("qwen3_moe")
    trainer = Trainer(config(source, tmp_path, steps=1), ALONE)
    trainer.run()
    found, start = exported(tmp_path), load_file(next(source.glob("*.safetensors")))
    assert {key: x.shape for key, x in found.items()} == {key: x.shape for key, x in start.items()}
    trained = trainer.model.state_dict()
    same = [key for key in found if key in trained]
    assert same
    assert all(torch.equal(found[key], trained[key]) for key in same)
    assert not any(torch.equal(found[key], start[key]) for key in start)


def test_an_export_changes_nothing_of_the_training(checkpoint: Checkpoint, tmp_path: Path) -> None:
    source, losses = checkpoint("llama"), []
    for name, steps in (("with", [1]), ("without", [])):
        asked = config(source, tmp_path / name, checkpoint=CheckpointConfig(export_at=steps))
        Trainer(asked, ALONE).run()
        losses.append([(step["loss"], step["grad_norm"]) for step in records(tmp_path / name)])
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("fault", "strength"),
    [("export_older_step", 0.05), ("export_through_bf16", 0.05), ("export_tied_stale", 1.0),
     ("export_tensor_left_out", 1.0)],
)  # fmt: skip
def test_a_fault_of_the_export_changes_the_files_alone(
    checkpoint: Checkpoint, tmp_path: Path, fault: str, strength: float
) -> None:
    source = checkpoint("llama")
    Trainer(config(source, tmp_path / "right"), ALONE).run()
    asked = config(source, tmp_path / "wrong")
    plant = Plant(asked, ALONE, strength)
    FAULTS[fault].apply(plant)
    try:
        Trainer(asked, ALONE).run()
    finally:
        plant.restore()
    right, wrong = exported(tmp_path / "right"), exported(tmp_path / "wrong")
    assert right.keys() != wrong.keys() or any(
        not torch.equal(right[key], wrong[key]) for key in right
    )
    assert [step["loss"] for step in records(tmp_path / "right")] == [
        step["loss"] for step in records(tmp_path / "wrong")
    ]


def test_a_fault_of_the_export_needs_one(tmp_path: Path) -> None:
    asked = Config(fault="export_older_step", output_dir=str(tmp_path))
    with pytest.raises(ConfigError, match=r"exports nothing: set checkpoint\.export_at"):
        faults.plant(asked, ALONE)


def test_an_export_after_no_step_of_the_run_is_refused() -> None:
    from sft import config as configs

    asked = {"steps": 2, "checkpoint": {"export_at": [3]}}
    with pytest.raises(ConfigError, match=r"checkpoint\.export_at=3 is none of the steps"):
        configs.parse(asked, "test")
