"""Any program that appends a JSON line a step to a metrics file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import cast

from sweep.case import layout_name
from sweep.facts import Metrics, read_metrics
from sweep.schema import CommandConf, Settings
from sweep.trainers.base import Command, Launch, torchrun


class CommandTrainer:
    """Fills in the words of `trainer.argv` and starts them."""

    def unavailable(self, settings: Settings) -> str | None:
        """A program of the user's own can run everything, except go on: nobody says how."""
        return "trainer=command cannot resume" if settings.feature.resume_at else None

    def needs_checkpoint(self, settings: Settings) -> bool:
        """Only if the command asks where the checkpoint is."""
        return any("{model}" in word for word in _conf(settings).argv)

    def launches(self, settings: Settings) -> list[Launch]:
        """One, from the first step to the last."""
        return [Launch("train", 1, settings.steps)]

    def command(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> Command:
        """`trainer.argv` with its placeholders replaced."""
        conf = _conf(settings)
        words = {
            "model": str(model),
            "arch": settings.arch.name,
            "layout": layout_name(settings.layout),
            "feature": settings.feature.name,
            "steps": str(settings.steps),
            "seed": str(settings.seed),
            "world_size": str(settings.layout.world_size),
            "output_dir": str(directory),
            "python": sys.executable,
        }
        argv = [_filled(word, words) for word in conf.argv]
        return Command(torchrun(settings, directory, argv) if conf.torchrun else argv, conf.env)

    def metrics(self, settings: Settings, directory: Path) -> Metrics:
        """Its metrics file."""
        return read_metrics(directory / _conf(settings).metrics)


def _conf(settings: Settings) -> CommandConf:
    return cast(CommandConf, settings.trainer)


def _filled(word: str, values: dict[str, str]) -> str:
    # Not str.format: braces that are no placeholder (JSON, shell) must pass through.
    for key, value in values.items():
        word = word.replace("{" + key + "}", value)
    return word


TRAINER = CommandTrainer()
