"""Every fault can be planted here, and refuses where the place that it changes is gone."""

from __future__ import annotations

import ast
import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from sft import faults
from sft.config import CheckpointConfig, Config
from sft.errors import ConfigError
from sft.faults import patching
from sft.faults.catalogue import CATALOGUE, FAULTS, Fault
from sft.faults.patching import Owner, Plant, PlantError
from sft.faults.reduction import sharded_layer
from sft.ranks import Ranks

ALONE = Ranks(0, 1, torch.device("cpu"))
EVERY = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


class Recorded(Plant):
    """Notes what a fault changes, and whether it reads the source there."""

    def points(self, fault: Fault) -> list[tuple[Owner, str, bool]]:
        found: list[tuple[Owner, str, bool]] = []
        around, edit = Plant.around, Plant.edit

        def noted_around(owner: Owner, name: str, make: Any) -> None:
            found.append((owner, name, False))
            around(self, owner, name, make)

        def noted_edit(owner: Owner, name: str, old: str, new: str) -> None:
            found.append((owner, name, True))
            edit(self, owner, name, old, new)

        object.__setattr__(self, "around", noted_around)
        object.__setattr__(self, "edit", noted_edit)
        fault.apply(self)
        return found


@pytest.fixture
def plants() -> Iterator[Callable[[], Recorded]]:
    """Makes plants whose changes are taken back."""
    made: list[Recorded] = []

    def make() -> Recorded:
        config = Config(checkpoint=CheckpointConfig([5], "run/checkpoints/step_5", [4]))
        made.append(Recorded(config, ALONE, 1.0))
        return made[-1]

    yield make
    for plant in reversed(made):
        plant.restore()


@EVERY
def test_a_fault_changes_something_and_says_what(fault: Fault, plants: Any) -> None:
    plant = plants()
    points = plant.points(fault)
    assert points
    assert all(getattr(owner, name) is not None for owner, name, _ in points)
    assert plant.changed, "nothing was replaced"
    assert len(fault.breaks.splitlines()) == 1
    assert bool(fault.strength) == bool(fault.strengths)


@EVERY
def test_a_fault_whose_place_is_gone_refuses(
    fault: Fault, plants: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plants()
    points = planned.points(fault)
    planned.restore()
    owner, name, _ = points[0]
    monkeypatch.delattr(owner, name)
    with pytest.raises(PlantError, match=f"has no {name} any more"):
        fault.apply(plants())


@pytest.mark.parametrize(
    ("number", "why"), [(1, "no layer 1: the model has 1"), (0, "use more ranks")]
)
def test_a_layer_that_is_not_there_or_not_sharded_is_refused(number: int, why: str) -> None:
    with pytest.raises(PlantError, match=why):
        sharded_layer(nn.Sequential(GradientCheckpointingLayer()), number)


@EVERY
def test_a_fault_whose_place_reads_otherwise_refuses(
    fault: Fault, plants: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = plants()
    edited = [(owner, name) for owner, name, reads in planned.points(fault) if reads]
    planned.restore()
    for owner, name in edited:
        monkeypatch.setattr(owner, name, rewritten)
        with pytest.raises(PlantError, match="mend it in sft/faults"):
            fault.apply(plants())


def rewritten(*_: Any) -> None:
    """As if somebody had written the function anew."""


def test_what_was_planted_can_be_taken_back(plants: Any) -> None:
    from sft.loop import Trainer

    before = Trainer.accumulate
    plant = plants()
    FAULTS["loss_local_mean"].apply(plant)
    assert Trainer.accumulate is not before
    assert "torch.lerp" in inspect.getsource(Trainer.accumulate)
    plant.restore()
    assert Trainer.accumulate is before


def test_an_edit_reaches_those_who_imported_the_function(plants: Any) -> None:
    from sft.context import gated_delta, mamba, recurrence

    FAULTS["recurrent_state_not_reset"].apply(plants())
    assert gated_delta.documents_in_chunks is recurrence.documents_in_chunks
    assert mamba.documents_in_chunks is recurrence.documents_in_chunks
    documents = gated_delta.documents_in_chunks(torch.tensor([[0, 1, 1, 2]]), 2)
    assert documents.flatten().tolist() == [0, 0, 0, 1]  # missed one boundary


def test_a_stale_activation_is_the_later_one_of_its_shape(plants: Any) -> None:
    from sft.memory import offloading

    FAULTS["act_offload_stale"].apply(plants())
    hooks = offloading.ActivationsOnCPU(ALONE.device, set())
    first, second = torch.rand(2, 3), torch.rand(2, 3)
    packed = [hooks.pack_hook(x) for x in (first, second)]
    assert [hooks.unpack_hook(x).tolist() for x in packed] == [second.tolist()] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "there is no such fault: python -m sft.faults lists them"),
        ("ep_grad_scaled:much", "the strength is a number"),
        ("ep_grad_scaled:", r"the strength is a number \(factor\); use fault=ep_grad_scaled:2"),
        ("ep_grad_scaled:nan", "the strength is a number"),
        ("resume_ignore", "did you mean resume_ignored?"),
        ("resume_ignored:2", "has no strength; use fault=resume_ignored"),
    ],
)
def test_a_fault_that_is_none_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        faults.parse(text)


def test_the_catalogue_has_every_function_that_plants() -> None:
    """A fault that is not in it could not be asked for, and nobody would notice."""
    written = {
        (path.stem, node.name)
        for path in Path(faults.__path__[0]).glob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and ast.unparse(node.args) == "at: Plant"
    }
    assert {(fault.kind, fault.name) for fault in CATALOGUE} == written
    assert len(FAULTS) == len(CATALOGUE)


def test_the_first_strength_is_the_default() -> None:
    assert faults.parse("ep_grad_scaled")[1] == 2
    assert faults.parse("ep_grad_scaled:1.01")[1] == 1.01


def test_a_place_that_reads_the_same_twice_is_refused(plants: Any) -> None:
    with pytest.raises(PlantError, match="3 times, not once"):
        plants().edit(patching, "imports_of", "for", "for")


@pytest.mark.slow
def test_the_trainer_says_which_fault_it_runs_with_and_refuses_one_that_is_none(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    def run(fault: str | None) -> subprocess.CompletedProcess[str]:
        config = {
            "model": {"path": str(checkpoint("llama"))},
            "data": {"seq_len": 128},
            "steps": 1,
            "fault": fault,
            "output_dir": str(tmp_path / str(fault)),
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "sft", str(tmp_path / "config.json")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    for fault in (None, "labels_shifted_twice:0.5"):
        assert run(fault).returncode == 0
        record = json.loads((tmp_path / str(fault) / "metrics.jsonl").read_text())
        assert record["fault"] == fault
    refused = run("nonsense")
    assert refused.returncode == 2
    assert refused.stderr.count("fault=nonsense: there is no such fault") == 1
    unfit = run("embeddings_untied:2")
    assert unfit.returncode == 2
    assert "has no strength" in unfit.stderr


@pytest.mark.slow
def test_a_list_into_a_pipe_that_is_closed_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does once it has its lines
    command = [sys.executable, "-m", "sft.faults"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, "")
