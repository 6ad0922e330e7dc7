"""How a trainer is described: what all have, and what each kind has besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING


@dataclass
class TrainerConf:
    """What every trainer has; each has its own subclass in `conf/trainer`."""

    name: str = MISSING
    adapter: str = MISSING  # the module of sweep/trainers that translates for it
    env: dict[str, str] = field(default_factory=dict)  # added to the environment of its processes
    not_shown: list[str] = field(default_factory=list)  # figures it has none of, as params_moved


@dataclass
class SftConf(TrainerConf):
    """The built-in trainer."""

    name: str = "sft"
    adapter: str = "sft"


class HfSharding(Enum):
    """Who shards the model under transformers' Trainer."""

    transformers = "transformers"  # from_pretrained(distributed_config=...): FSDP2 and experts
    accelerate = "accelerate"  # TrainingArguments(fsdp=...)


@dataclass
class HfTrainerConf(TrainerConf):
    """transformers' own Trainer."""

    name: str = "hf_trainer"
    adapter: str = "hf_trainer"
    sharding: HfSharding = HfSharding.transformers


@dataclass
class PrimeRlConf(TrainerConf):
    """PrimeIntellect-ai/prime-rl's SFT trainer."""

    name: str = "prime_rl"
    adapter: str = "prime_rl"
    project: str | None = None  # the folder that uv runs it from
    dataset: str | None = None  # a Hugging Face data set; random tokens without
    renderer: str | None = None  # of its package `renderers`, for a data set


@dataclass
class TorchtitanConf(TrainerConf):
    """pytorch/torchtitan."""

    name: str = "torchtitan"
    adapter: str = "torchtitan"
    python: str | None = None  # an interpreter that has it; our own otherwise


class MetricsFormat(Enum):
    """What a trainer writes its figures as."""

    jsonl = "jsonl"
    csv = "csv"
    tensorboard = "tensorboard"
    log = "log"


@dataclass
class MetricsConf:
    """Where a trainer's figures are, and what it calls them (docs/trainers.md)."""

    format: MetricsFormat = MetricsFormat.jsonl
    path: str | None = None  # in the launch's folder, * allowed; by default metrics.jsonl, ...
    fields: dict[str, str] = field(default_factory=dict)  # our name -> its name (a.b: b inside a)
    pattern: str | None = None  # format=log: a regular expression with the groups step, loss, ...
    merge: str | None = None  # format=jsonl: lines of one step are one, if one has this figure
    first_step: int = 1  # the number it gives to its first step


@dataclass
class ResumeConf:
    """What the second launch of a case that resumes has more, or otherwise."""

    checkpoint: str = "{output_dir}/checkpoint"  # what the first launch saved: {resume_from}
    argv: list[str] = field(default_factory=list)  # words added to the command
    files: dict[str, str] = field(default_factory=dict)  # added, or instead of those of that name
    env: dict[str, str] = field(default_factory=dict)


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
    archs: list[str] | None = None  # what it can do; null: everything
    layouts: list[str] | None = None  # patterns on names, as in fsdp*_ep1
    features: list[str] | None = None  # keys of a feature file, as in compile, ac=full, resume_at


TRAINERS = {
    node.adapter: node
    for node in (SftConf, CommandConf, HfTrainerConf, PrimeRlConf, TorchtitanConf)
}
