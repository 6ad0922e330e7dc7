"""A case as an adapter gets it, and what it makes of each of the case's launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sweep import trainers
from sweep.schema import ArchConf, Device, FeatureConf, LayoutConf, Settings, TrainerConf
from sweep.trainers.base import Command, in_folders


def case_for(
    trainer: TrainerConf, world: int = 1, cp: int = 1, ep: int = 1, arch: str = "qwen3_moe",
    device: Device = Device.cpu, **feature: Any,
) -> Settings:  # fmt: skip
    """Eight steps at the scale nano."""
    found = Settings(steps=8, trainer=trainer, device=device)
    found.arch = ArchConf(name=arch, moe=arch != "llama")
    found.scale.name, found.data.seq_len = "nano", 512
    found.layout = LayoutConf(world_size=world, dp_shard=world // cp, cp=cp, ep=ep)
    found.feature = FeatureConf(**{"name": "none", **feature})
    return found


def launched(settings: Settings, case_dir: Path) -> list[tuple[Command, Path]]:
    """The command of each launch, in order, with the launch's folder and what is written there."""
    trainer, done = trainers.of(settings), []
    for launch, directory in in_folders(trainer.launches(settings), case_dir):
        directory.mkdir(parents=True)
        done.append((trainer.command(settings, launch, directory, Path("/model")), directory))
    return done
