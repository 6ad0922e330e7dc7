"""Save and restore all that a run needs to go on as if it had never stopped.

Tensors (parameters, persistent buffers, optimizer moments, each rank's RNG) go through
`torch.distributed.checkpoint`, which lays them out anew for another layout; what all ranks share
(step, scheduler, data position) is one JSON file. A checkpoint is written beside its place and
renamed when it is whole, so that one cut off in the middle is never loaded.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sft.errors import ConfigError

if TYPE_CHECKING:
    from sft.loop import Trainer

SHARED = "trainer.json"
FIXED = ("seq_len", "global_batch", "seed", "path")
"""Data settings without which a saved position means other rows."""


def folder(output_dir: str, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return Path(output_dir) / "checkpoints" / f"step_{step}"


def save(trainer: Trainer) -> Path:
    """Write a checkpoint of this step, whole or not at all."""
    import torch.distributed.checkpoint as dcp

    place = folder(trainer.config.output_dir, trainer.step)
    partial = place.with_name(place.name + ".partial")
    dcp.save(tensors(trainer), checkpoint_id=partial, no_dist=trainer.ranks.world_size == 1)
    if trainer.ranks.rank == 0:
        (partial / SHARED).write_text(json.dumps(shared(trainer)))
        put_in_place(partial, place)
    trainer.ranks.wait()
    return place


def put_in_place(partial: Path, place: Path) -> None:
    """Rename a whole checkpoint; one of an earlier run in the same folder makes way for it."""
    old = place.with_name(place.name + ".old")
    if place.exists():
        shutil.rmtree(old, ignore_errors=True)
        place.rename(old)
    partial.rename(place)
    shutil.rmtree(old, ignore_errors=True)


def load(trainer: Trainer, place: Path) -> None:
    """Restore a checkpoint into a fresh trainer; raises `ConfigError` where it is not one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    saved = read_shared(place)
    check_same_data(saved, trainer.config.data, place)
    check_steps_are_left(saved, trainer.config.steps, place)
    state = tensors(trainer)
    for name in saved["never_updated"]:
        state["optimizer"]["state"].pop(name, None)
    if saved["world_size"] != trainer.ranks.world_size:
        del state["rng"]  # each rank has its own stream: there is none for another number of ranks
    try:
        dcp.load(state, checkpoint_id=place, no_dist=trainer.ranks.world_size == 1)
    except dcp.CheckpointException as error:
        cause, _ = next(iter(error.failures.values()))
        raise ConfigError(f"{place} cannot be read: {cause}; resume from another step") from error
    # what must be there was loaded strictly; `never_updated` is what may be missing here
    options = StateDictOptions(strict=False)
    set_optimizer_state_dict(trainer.model, trainer.optimizer, state["optimizer"], options=options)
    if "rng" in state:
        restore_rng(state["rng"][str(trainer.ranks.rank)])
    trainer.step = saved["step"]
    trainer.scheduler.load_state_dict(saved["scheduler"])
    trainer.loader.load_state_dict(saved["loader"])


def tensors(trainer: Trainer) -> dict[str, Any]:
    """Tensors by name, those of the model in place: loading into them loads the model."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = get_state_dict(trainer.model, trainer.optimizer)
    return {
        "model": model,
        "optimizer": optimizer,
        "rng": {str(trainer.ranks.rank): rng(trainer.ranks.device)},
    }


def shared(trainer: Trainer) -> dict[str, Any]:
    """What every rank has alike."""
    updated = trainer.optimizer.state
    return {
        "step": trainer.step,
        "world_size": trainer.ranks.world_size,
        "scheduler": trainer.scheduler.state_dict(),
        "loader": trainer.loader.state_dict(),
        "data": {key: getattr(trainer.config.data, key) for key in FIXED},
        # parameters that never had a gradient (an indexer's) have no moments to restore
        "never_updated": [n for n, p in trainer.model.named_parameters() if p not in updated],
    }


def read_shared(place: Path) -> dict[str, Any]:
    """A checkpoint's shared state; raises `ConfigError` where there is no whole checkpoint."""
    if not (place / SHARED).is_file() or not (place / ".metadata").is_file():
        others = sorted(path.name for path in place.parent.glob("step_*") if path.suffix == "")
        there = f"; there are {', '.join(others)}" if others else ""
        raise ConfigError(f"checkpoint.resume_from={place} is not a whole checkpoint{there}")
    saved: dict[str, Any] = json.loads((place / SHARED).read_text())
    return saved


def check_same_data(saved: dict[str, Any], data: object, place: Path) -> None:
    """Refuse to go on with other data than the checkpoint's position counts in."""
    for key, value in saved["data"].items():
        if (now := getattr(data, key)) != value:
            raise ConfigError(f"data.{key}={now} but {place} was saved with {value}; use {value}")


def check_steps_are_left(saved: dict[str, Any], steps: int, place: Path) -> None:
    """Refuse to go on from where the run would have ended."""
    if saved["step"] >= steps:
        raise ConfigError(
            f"steps={steps} but {place} was saved after step {saved['step']}; "
            f"use steps={saved['step'] + 1} or more"
        )


def rng(device: torch.device) -> dict[str, torch.Tensor]:
    """The state of this rank's generators."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_rng(states: dict[str, torch.Tensor]) -> None:
    """Set this rank's generators."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
