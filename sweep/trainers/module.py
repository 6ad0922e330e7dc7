"""Trainers of this repository: `torchrun -m MODULE CONFIG.json`, which writes metrics.jsonl."""

from __future__ import annotations

import sys
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from sweep import provenance
from sweep.errors import RequestError
from sweep.facts import Metrics
from sweep.files import write_json
from sweep.schema import MetricsConf, Settings
from sweep.trainers import readers
from sweep.trainers.base import Command, Launch, Trainer, torchrun

# The folder that the sweep is started in may have an sft/ of its own.
SAFE_PATH = {"PYTHONSAFEPATH": "1"}
PARTS = ("sft", "hf_sft", "sweep_taps")
"""What an interpreter of the trainer's own must find of this project."""


class ModuleTrainer(Trainer):
    """Writes the config file, and starts the module on every rank."""

    module: ClassVar[str]

    @abstractmethod
    def config(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> dict[str, Any]:
        """What the module's config file says."""

    def needs_checkpoint(self, settings: Settings) -> bool:
        """Always: it trains what is there."""
        return True

    def command(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> Command:
        """Write config.json; run it on world_size ranks."""
        path = directory / "config.json"
        write_json(path, self.config(settings, launch, directory, model))
        argv = torchrun(settings, directory, ["-m", self.module, str(path)])
        return Command(argv, SAFE_PATH | _elsewhere(settings, directory) | settings.trainer.env)

    def server(self, settings: Settings) -> list[str] | None:
        """The built-in trainer's, on one machine: it forks any program with transformers there."""
        program = [sys.executable, "-P", "-m", "sft.warm.server"]
        is_ours = settings.layout.nodes == 1 and settings.trainer.python is None
        return program if is_ours else None

    def project(self, settings: Settings) -> Path:
        """This project's own, or where a tree has it."""
        conf = settings.trainer
        if not (conf.tree and conf.project):
            return provenance.ROOT
        if not (Path(conf.project) / self.module).is_dir():
            raise RequestError(f"trainer.tree={conf.tree}: there is no {self.module}/ in it")
        return Path(conf.project)

    def metrics(self, settings: Settings, directory: Path) -> Metrics:
        """Its metrics.jsonl."""
        return readers.read(MetricsConf(), directory)

    def last_step(self, settings: Settings, directory: Path) -> int:
        """From the end of what its reader reads."""
        return readers.last_step(MetricsConf(), directory)


def _elsewhere(settings: Settings, directory: Path) -> dict[str, str]:
    """What finds our modules from another interpreter, and keeps rows apart by tree.

    By links: with the whole folder of an installed package, its neighbours would come as well.
    """
    env = {"SFT_CACHE": str(directory / "rows")} if settings.trainer.tree else {}
    if settings.trainer.python is None or settings.trainer.tree is not None:
        return env
    code = directory / "code"
    code.mkdir(exist_ok=True)
    for path in provenance.ROOT.iterdir():
        if path.stem in PARTS and (path.is_dir() or path.suffix == ".py"):
            (code / path.name).symlink_to(path)
    return env | {"PYTHONPATH": str(code)}
