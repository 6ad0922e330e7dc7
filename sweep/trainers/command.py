"""Any trainer, by YAML alone: its words, its config files, how it resumes, what it writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from omegaconf import MISSING

from sweep.errors import RequestError
from sweep.facts import Metrics
from sweep.files import write_text
from sweep.schema import MetricsConf, ResumeConf, Settings, TrainerConf
from sweep.trainers import definitions, readers, template
from sweep.trainers.abilities import lacking, untold
from sweep.trainers.base import (
    LOG,
    PROCESS,
    Command,
    Launch,
    Trainer,
    before,
    torchrun,
    train_and_resume,
)

RESERVED = (LOG, PROCESS, "ranks")
SCRIPTS = (".py", ".sh")


@dataclass
class CommandConf(TrainerConf):
    """Any program, by its command line, its config files and what it writes.

    {words} in braces are filled in, in argv, files and env alike (docs/trainers.md lists them); a
    word that comes out empty is left out. A checkpoint is only built where {model} is asked for.
    """

    name: str = "command"
    adapter: str = "command"
    argv: list[str] = MISSING
    torchrun: bool = False  # start argv on world_size ranks with torchrun
    files: dict[str, str] = field(default_factory=dict)  # name in {output_dir} -> text
    spelling: dict[str, dict[Any, Any]] = field(default_factory=dict)  # {word} -> ours -> theirs
    metrics: MetricsConf = field(default_factory=MetricsConf)
    resume: ResumeConf = field(default_factory=ResumeConf)
    # the trainer's definitions for the oracle, as {decay: all} (docs/oracle.md); empty: not asked
    oracle: dict[str, Any] = field(default_factory=dict)
    # the folder of the checkpoint in Hugging Face's format that it writes after {export_at} steps,
    # as "{output_dir}/hf"; null: it writes none
    export: str | None = None
    archs: list[str] | None = None  # what it can do; null: everything
    layouts: list[str] | None = None  # patterns on names, as in fsdp*_ep1
    features: list[str] | None = None  # keys of a feature file, as in compile, ac=full, resume_at


class CommandTrainer(Trainer):
    """Fills in the words and files of `conf/trainer/*.yaml` and starts them."""

    def unavailable(self, settings: Settings) -> str | None:
        """What is on none of its lists, or how it would resume; raises RequestError if unclear."""
        conf = _conf(settings)
        _check(settings)
        reason = lacking(settings, conf.archs, conf.layouts, conf.features) or untold(
            settings, lambda name: _uses(conf, name)
        )
        if reason is None and settings.feature.resume_at and not _uses(conf, "resume_from"):
            return (
                f"trainer={conf.name} cannot resume: nothing in trainer.resume uses {{resume_from}}"
            )
        return reason

    def needs_checkpoint(self, settings: Settings) -> bool:
        """Only if the command asks where the checkpoint is."""
        return _uses(_conf(settings), "model")

    def oracle(self, settings: Settings) -> dict[str, Any] | None:
        """What the configuration says of its definitions; None if nothing."""
        more = _conf(settings).oracle
        return definitions.of_case(settings) | more if more else None

    def export(self, settings: Settings, directory: Path) -> Path | None:
        """The folder as configured, from the first launch's point of view."""
        text = _conf(settings).export
        if text is None:
            return None
        first = train_and_resume(settings)[0]
        values = template.values_of(settings, first, directory, None)
        return directory / template.fill(text, values, "trainer.export")

    def command(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> Command:
        """Write the files; `trainer.argv` and environment with their placeholders replaced."""
        conf = _conf(settings)
        values = _values(settings, launch, directory, model)
        files, env, words = dict(conf.files), dict(conf.env), list(conf.argv)
        if launch.name != "train":
            files |= conf.resume.files
            env |= conf.resume.env
            words += conf.resume.argv
        for name, text in files.items():
            write_text(directory / name, template.fill(text, values, f"trainer.files.{name}"))
        filled = ((word, template.fill(word, values, "trainer.argv")) for word in words)
        argv = [new for old, new in filled if new or not old]
        return Command(
            torchrun(settings, directory, argv) if conf.torchrun else argv,
            {key: template.fill(text, values, f"trainer.env.{key}") for key, text in env.items()},
        )

    def metrics(self, settings: Settings, directory: Path) -> Metrics:
        """What its reader finds."""
        return readers.read(_conf(settings).metrics, directory)

    def last_step(self, settings: Settings, directory: Path) -> int:
        """From the end of what its reader reads."""
        return readers.last_step(_conf(settings).metrics, directory)

    def project(self, settings: Settings) -> Path | None:
        """As configured, else the folder of the script or module that its command line starts."""
        return super().project(settings) or _script_folder(_conf(settings).argv)


def _script_folder(argv: Sequence[str]) -> Path | None:
    """Where the script is that a command line names; for `-m` a module of this folder, here."""
    for word, following in pairwise([*argv, ""]):
        if Path(word).suffix in SCRIPTS and Path(word).is_file():
            return Path(word).resolve().parent
        module = Path(following.partition(".")[0])
        if word == "-m" and (module.is_dir() or module.with_suffix(".py").is_file()):
            return Path.cwd()
    return None


def _conf(settings: Settings) -> CommandConf:
    return cast(CommandConf, settings.trainer)


def _values(
    settings: Settings, launch: Launch, directory: Path, model: Path | None
) -> dict[str, str]:
    conf = _conf(settings)
    saved = ""
    if (earlier := before(settings, launch, directory)) is not None:
        then = template.values_of(settings, *earlier, model)
        saved = template.fill(conf.resume.checkpoint, then, "trainer.resume.checkpoint")
    values = template.values_of(settings, launch, directory, model, saved)
    return template.spelled(values, conf.spelling)


def _check(settings: Settings) -> None:
    """Whatever is wrong with the YAML is said while planning: fill everything in once."""
    conf = _conf(settings)
    readers.check(conf.metrics)
    for name in (*conf.files, *conf.resume.files):
        path = Path(name)
        if path.is_absolute() or ".." in path.parts or path.parts[0] in RESERVED:
            raise RequestError(
                f"trainer.files.{name}: say another name, relative to the launch's folder"
            )
    values = template.spelled(
        template.values_of(settings, train_and_resume(settings)[0], Path(), None), conf.spelling
    )
    for where, text in _texts(conf):
        template.fill(text, values, where)


def _texts(conf: CommandConf) -> Iterator[tuple[str, str]]:
    """Every template, with the key it is written under."""
    for prefix, part in (("trainer", conf), ("trainer.resume", conf.resume)):
        yield from ((f"{prefix}.argv", word) for word in part.argv)
        yield from ((f"{prefix}.files.{name}", text) for name, text in part.files.items())
        yield from ((f"{prefix}.env.{name}", text) for name, text in part.env.items())
    yield "trainer.resume.checkpoint", conf.resume.checkpoint
    yield "trainer.export", conf.export or ""


def _uses(conf: CommandConf, name: str) -> bool:
    return any(template.uses(text, name) for _, text in _texts(conf))


TRAINER: Trainer = CommandTrainer()
