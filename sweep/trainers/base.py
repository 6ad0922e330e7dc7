"""What an adapter does for the sweep, and what adapters share."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, Field

from sweep.errors import refusing
from sweep.facts import Metrics
from sweep.schema import Settings
from sweep.slurm import nodes

LAUNCHES = "launches"  # in a case's folder: a folder for each, in their order
LOG = "launcher.log"  # in a launch's folder
PROCESS = "process.json"  # in a launch's folder: finds processes that outlived it
CHOICES = "choices"  # in a launch's folder: what it picked where scores are close
ABOUT = "about.json"  # in a launch's folder: what the trainer says that it runs (class About)


@dataclass(frozen=True)
class Launch:
    """One start of the trainer: its name and the steps it is expected to report.

    A repeat has the name and folder of its own; the adapter is asked for the launch it repeats.
    """

    name: str
    first_step: int
    last_step: int
    repeats: Launch | None = None


@dataclass(frozen=True)
class Command:
    """What to start, with what is added to the environment."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)


class About(BaseModel):
    """What a trainer may say of a launch in `about.json`, before its first step."""

    code: str | None = Field(default=None, max_length=100)  # digest of its files, as imported
    data: str | None = Field(default=None, max_length=100)  # of tokens, labels and positions
    checkpoint: str | None = Field(default=None, max_length=100)  # where the sweep builds none
    versions: dict[str, str] = Field(default_factory=dict, max_length=50)  # of its libraries

    @classmethod
    def read(cls, directory: Path) -> About:
        """Of the launch in `directory`; raises RequestError for a file that is none."""
        path = directory / ABOUT
        with refusing(f"{path.parent.name}/{ABOUT}"):
            return cls.model_validate_json(path.read_bytes()) if path.is_file() else cls()


class Trainer(Protocol):
    """An adapter. It never imports its trainer: it writes a config file and reads the output."""

    def unavailable(self, settings: Settings) -> str | None:
        """Why this trainer or this machine cannot run the case; None if it can.

        Raises RequestError for a setting that is wrong whatever the case.
        """
        return None

    def check(self, cases: Sequence[Settings]) -> list[str | None]:
        """`unavailable` of all cases of a plan; an adapter that asks its trainer asks once."""
        return [self.unavailable(settings) for settings in cases]

    def needs_checkpoint(self, settings: Settings) -> bool:
        """Whether a seeded checkpoint of the arch has to be there first."""
        ...

    def launches(self, settings: Settings) -> list[Launch]:
        """The starts that make up the case: the whole run, then one from each saved step on."""
        return train_and_resume(settings)

    def command(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> Command:
        """Write the trainer's config into the launch's `directory`; return what to start."""
        ...

    def server(self, settings: Settings) -> list[str] | None:
        """The program that can fork `command`'s ranks (sweep/run/warm.py), if there is one."""
        return None

    def oracle(self, settings: Settings) -> dict[str, Any] | None:
        """How the trainer defines what it computes: oracle/settings.py; None: nobody has said."""
        return None

    def export(self, settings: Settings, directory: Path) -> Path | None:
        """Where the launch in `directory` exports its model after step `exports_at`; None: nowhere.

        In Hugging Face's format, which plain transformers loads.
        """
        return None

    def metrics(self, settings: Settings, directory: Path) -> Metrics:
        """The steps reported so far in the launch's `directory`."""
        ...

    def last_step(self, settings: Settings, directory: Path) -> int:
        """The last of them, asked for all the time; 0 before the first."""
        return max((step.step for step in self.metrics(settings, directory).steps), default=0)

    def project(self, settings: Settings) -> Path | None:
        """The folder of its code, whose git commit is recorded; None: nobody knows."""
        return Path(settings.trainer.project) if settings.trainer.project else None


def train_and_resume(settings: Settings) -> list[Launch]:
    """From the first step to the last; then from each saved step on, each in fresh processes."""
    launches = [Launch("train", 1, settings.steps)]
    for number, step in enumerate(settings.feature.resume_at, start=1):
        name = "resume" if number == 1 else f"resume_{number}"
        launches.append(Launch(name, step + 1, settings.steps))
    return launches


def all_launches(trainer: Trainer, settings: Settings) -> list[Launch]:
    """The case's launches, then all repeats that may become necessary (sweep/run/repeats.py)."""
    whole, *resumed = trainer.launches(settings)
    count = settings.noise.repeats if resumed or settings.noise.parity else 0
    return [
        whole,
        *resumed,
        *(_again(whole, number) for number in range(1, count + 1)),
        *(_again(launch, number) for number in range(1, count) for launch in resumed),
    ]


def _again(launch: Launch, number: int) -> Launch:
    name = f"{launch.name}_again" + (f"_{number}" if number > 1 else "")
    return replace(launch, name=name, repeats=launch)


def saves_at(settings: Settings, launch: Launch) -> int | None:
    """The step after which the launch saves what the next one goes on from."""
    number = train_and_resume(settings).index(launch)
    return (*settings.feature.resume_at, None)[number]


def exports_at(settings: Settings, launch: Launch) -> int | None:
    """The step after which the launch exports: the last but one, whose next loss is known."""
    is_whole = launch.first_step == 1 and launch.last_step > 1
    return launch.last_step - 1 if settings.export and is_whole else None


def in_folders(launches: Sequence[Launch], case_dir: Path) -> list[tuple[Launch, Path]]:
    """Each launch with its folder, whether it is there yet or not."""
    return [
        (launch, case_dir / LAUNCHES / _folder(number, launch))
        for number, launch in enumerate(launches, start=1)
    ]


def _folder(number: int, launch: Launch) -> str:
    return f"{number}_{launch.name}"


def before(settings: Settings, launch: Launch, directory: Path) -> tuple[Launch, Path] | None:
    """The launch that this one, in `directory`, goes on from, and its directory."""
    launches = train_and_resume(settings)
    number = launches.index(launch)
    if number == 0:
        return None
    previous = launches[number - 1]
    return previous, directory.parent / _folder(number, previous)


def python_of(settings: Settings) -> str:
    """The interpreter that the trainer runs in."""
    return settings.trainer.python or sys.executable


def torchrun(settings: Settings, directory: Path, program: Sequence[str]) -> list[str]:
    """`program` on every rank, meeting at a free port, with a log and an error file a rank."""
    ranks = str(directory / "ranks")
    if settings.layout.nodes > 1:
        return nodes.command(settings.layout, directory / "ranks", program)
    return [
        python_of(settings), "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(settings.layout.world_size),
        "--log-dir", ranks, "--tee", "3", *program,
    ]  # fmt: skip
