"""What an adapter writes for every layout and feature, as on a GPU; none is needed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir

from sweep import schema, trainers
from sweep.case.labels import settings_of
from sweep.case.machine import Machine
from sweep.files import conf_dir
from sweep.trainers.base import Command, in_folders

LAYOUTS = ("single", "fsdp4_ep4", "cp4_ep4", "dp2_cp2_ep4")


def written(archs: Sequence[str], folder: Path, *words: str) -> Iterator[tuple[str, Command, Path]]:
    """Name, command and folder of each launch of every case of these archs, with `words` said."""
    schema.register()
    features = sorted(path.stem for path in (conf_dir() / "feature").glob("*.yaml"))
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        for arch, layout, feature in itertools.product(archs, LAYOUTS, features):
            case = [f"arch={arch}", f"layout={layout}", f"feature={feature}", "device=cuda"]
            yield from _launches(f"{arch}-{layout}-{feature}", [*case, *words], folder)


def _launches(name: str, overrides: list[str], folder: Path) -> Iterator[tuple[str, Command, Path]]:
    settings = settings_of(compose("config", overrides), Machine())
    trainer = trainers.of(settings)
    if reason := trainer.check([settings])[0]:
        print(f"{name}: {reason}")
        return
    for launch, directory in in_folders(trainer.launches(settings), folder / name):
        directory.mkdir(parents=True)
        command = trainer.command(settings, launch, directory, Path("/model"))
        yield f"{name}-{launch.name}", command, directory
