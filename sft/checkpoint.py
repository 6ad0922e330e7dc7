"""Save and restore all that a run needs to go on as if it had never stopped.

Tensors (parameters, persistent buffers, optimizer moments, each rank's RNG) go through
`torch.distributed.checkpoint`, which lays them out anew for another layout; what all ranks share
(step, scheduler, data position, settings) is one JSON file. A checkpoint is written beside its
place, its files' digests last, and renamed when it is whole: one cut off in the middle is never
loaded, nor is one that reads otherwise than it was written.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from sft import digests, settings
from sft.config import Config
from sft.data import Loader
from sft.errors import ConfigError
from sft.ranks import Ranks

SHARED = "trainer.json"
LEFT_OVER = (".partial", ".old")
"""Of a save that was cut off while it renamed: the new checkpoint, and the one before."""


class Run(Protocol):
    """What is saved of a run, and restored into a fresh one; `sft.loop.Trainer` has it."""

    config: Config
    ranks: Ranks
    optimizer: torch.optim.Optimizer
    scheduler: LambdaLR
    loader: Loader
    step: int

    @property
    def model(self) -> nn.Module:
        """Its parameters and persistent buffers are saved."""
        ...


def folder(output_dir: str, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return Path(output_dir) / "checkpoints" / f"step_{step}"


def save(trainer: Run) -> Path:
    """Write a checkpoint of this step, whole or not at all."""
    import torch.distributed.checkpoint as dcp

    place = folder(trainer.config.output_dir, trainer.step)
    partial = place.with_name(place.name + ".partial")
    state = tensors(trainer)
    del state["optimizer"]["param_groups"]  # rates and decay are the configuration's
    if trainer.ranks.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
    trainer.ranks.wait()
    dcp.save(state, checkpoint_id=partial, no_dist=trainer.ranks.world_size == 1)
    if trainer.ranks.rank == 0:
        (partial / SHARED).write_text(json.dumps(shared(trainer)))
    trainer.ranks.wait()
    digests.write(partial, trainer.ranks)
    if trainer.ranks.rank == 0:
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


def load(trainer: Run, place: Path) -> None:
    """Restore a checkpoint into a fresh trainer; raises `ConfigError` where it is not one."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

    check_whole(place)
    digests.check(place, trainer.ranks)
    saved = read_shared(place)
    allowed = trainer.config.resume.allow
    settings.check(shaping(trainer), saved["settings"], allowed, place)
    check_steps_are_left(saved, trainer.config.steps, place)
    state = tensors(trainer)
    groups = state["optimizer"].pop("param_groups")
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
    optimizer = state["optimizer"] | {"param_groups": groups}
    set_optimizer_state_dict(trainer.model, trainer.optimizer, optimizer, options=options)
    if "rng" in state:
        restore_rng(state["rng"][str(trainer.ranks.rank)])
    trainer.step = saved["step"]
    trainer.scheduler.load_state_dict(saved["scheduler"])
    set_rates(trainer)
    trainer.loader.load_state_dict(saved["loader"])


def tensors(trainer: Run) -> dict[str, Any]:
    """Tensors by name, those of the model in place: loading into them loads the model."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer = get_state_dict(trainer.model, trainer.optimizer)
    return {
        "model": model,
        "optimizer": optimizer,
        "rng": {str(trainer.ranks.rank): rng(trainer.ranks.device)},
    }


def shared(trainer: Run) -> dict[str, Any]:
    """What every rank has alike."""
    updated = trainer.optimizer.state
    return {
        "step": trainer.step,
        "world_size": trainer.ranks.world_size,
        "scheduler": trainer.scheduler.state_dict(),
        "loader": trainer.loader.state_dict(),
        "settings": shaping(trainer),
        # parameters that never had a gradient (an indexer's) have no moments to restore
        "never_updated": [n for n, p in trainer.model.named_parameters() if p not in updated],
    }


def shaping(trainer: Run) -> settings.Settings:
    """The settings that shape this run's numbers."""
    return settings.shaping(trainer.config, trainer.loader.digest)


def set_rates(trainer: Run) -> None:
    """Learning rates at the restored step, as this configuration has them."""
    scheduler, optimizer = trainer.scheduler, trainer.optimizer
    scheduler.base_lrs = [trainer.config.optim.lr for _ in optimizer.param_groups]
    for group, factor in zip(optimizer.param_groups, scheduler.lr_lambdas, strict=True):
        group["lr"] = trainer.config.optim.lr * factor(scheduler.last_epoch)
    scheduler._last_lr = [group["lr"] for group in optimizer.param_groups]


def read_shared(place: Path) -> dict[str, Any]:
    """A checkpoint's shared state; raises `ConfigError` where there is no whole checkpoint."""
    check_whole(place)
    try:
        saved: dict[str, Any] = json.loads((place / SHARED).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{place / SHARED} is damaged: {error}; resume from another step"
        ) from None
    return saved


def check_whole(place: Path) -> None:
    """Refuse a folder that is no whole checkpoint; names those there are, and what a save left."""
    if is_whole(place):
        return
    left = [place.with_name(place.name + end) for end in LEFT_OVER]
    if whole := [path.name for path in left if is_whole(path)]:
        hint = f": a save was cut off while renaming it; rename {whole[0]} to {place.name}"
    else:
        others = sorted(path.name for path in place.parent.glob("step_*") if path.suffix == "")
        hint = f"; there are {', '.join(others)}" if others else ""
    raise ConfigError(f"checkpoint.resume_from={place} is not a whole checkpoint{hint}")


def is_whole(place: Path) -> bool:
    """Whether a folder has all that a checkpoint has: its digests were written last."""
    return all((place / name).is_file() for name in (SHARED, ".metadata", digests.FILE))


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
