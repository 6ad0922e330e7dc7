"""PrimeIntellect-ai/prime-rl's SFT trainer: `uv run sft @ config.toml`, in its own environment.

Field names are those of its configuration package at commit 559b447 (2026-08-21):
packages/prime-rl-configs/src/prime_rl/configs/{sft,trainer,shared,monitors}.py. It writes a line of
metrics a family (optimizer, loss, time, ...), several to a step: src/prime_rl/monitors/file.py and
src/prime_rl/trainer/sft/train.py.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import tomli_w

from sweep.facts import Metrics
from sweep.files import write_text
from sweep.schema import (
    ActivationCheckpointing,
    Device,
    ExpertDispatch,
    MetricsConf,
    Settings,
    TrainerConf,
)
from sweep.trainers import readers
from sweep.trainers.abilities import untold
from sweep.trainers.base import Command, Launch, Trainer, before, saves_at

RUN = "run"  # its own folder in the launch's
NONE = "None"  # TOML has no null; its parser reads this as one
METRICS = MetricsConf(
    path=f"{RUN}/metrics.jsonl",
    # Figures that are not finite are dropped from a line; this one is a count, and always there.
    merge="loss/nan_count",
    fields={
        "loss": "loss/mean",
        "grad_norm": "optim/grad_norm",
        "lr": "optim/lr",
        "step_seconds": "time/step",
        "peak_memory_gib": "perf/peak_memory",
    },
)


@dataclass
class PrimeRlConf(TrainerConf):
    """PrimeIntellect-ai/prime-rl's SFT trainer."""

    name: str = "prime_rl"
    adapter: str = "prime_rl"
    dataset: str | None = None  # a Hugging Face data set; random tokens without
    renderer: str | None = None  # of its package `renderers`, for a data set


class PrimeRlTrainer(Trainer):
    """Translates a case into prime-rl's TOML."""

    def unavailable(self, settings: Settings) -> str | None:
        """What its configuration refuses, or what it needs to run at all."""
        feature, layout = settings.feature, settings.layout
        refusals = (
            (settings.device is Device.cpu, "prime-rl trains on GPUs only"),
            (shutil.which("uv") is None, "prime-rl is started with uv, which is not installed"),
            (layout.nodes > 1, "prime-rl submits runs of several nodes to Slurm itself"),
            (
                feature.act_offload and feature.ac is ActivationCheckpointing.none,
                "prime-rl's ac_offloading turns activation checkpointing on",
            ),
            (
                feature.optim_offload and feature.full_offload,
                "prime-rl has optim_cpu_offload or full_offload, not both",
            ),
            (
                feature.ep_backend is ExpertDispatch.deepep and layout.ep == 1,
                "prime-rl's DeepEP needs model.ep above 1",
            ),
        )
        return untold(settings) or next((why for refused, why in refusals if refused), None)

    def needs_checkpoint(self, settings: Settings) -> bool:
        """Always: it trains what is there."""
        return True

    def command(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> Command:
        """Write config.toml; its launcher starts a rank on each GPU."""
        path = directory / "config.toml"
        write_text(path, tomli_w.dumps(config(settings, launch, directory, model)))
        ranks = directory / "ranks"
        if not ranks.is_symlink():  # where a failure's root cause is looked for
            ranks.symlink_to(Path(RUN, "logs", "latest", "trainer", "torchrun"))
        project = settings.trainer.project
        uv = ["uv", "run", *(["--project", project] if project else [])]
        return Command([*uv, "sft", "@", str(path)], settings.trainer.env)

    def project(self, settings: Settings) -> Path:
        """The folder that uv runs it from."""
        return Path(settings.trainer.project or ".")

    def metrics(self, settings: Settings, directory: Path) -> Metrics:
        """Its file monitor's metrics.jsonl."""
        return readers.read(METRICS, directory)

    def last_step(self, settings: Settings, directory: Path) -> int:
        """From the end of what its reader reads."""
        return readers.last_step(METRICS, directory)


def config(
    settings: Settings, launch: Launch, directory: Path, model: Path | None
) -> dict[str, Any]:
    """`SFTConfig`, as far as it is not the default."""
    world = settings.layout.world_size
    values = {
        "output_dir": str(directory),
        "max_steps": settings.steps,
        "run": {"name": RUN},
        "model": _model(settings, model),
        "data": _data(settings),
        "optim": _optim(settings),
        "scheduler": _scheduler(settings),
        "monitors": {"wandb": NONE, "file": {"path": "metrics.jsonl"}},
        "deployment": {"type": "single_node", "num_train_gpus": world, "gpus_per_node": world},
        **_checkpoints(settings, launch, directory),
    }
    if renderer := cast(PrimeRlConf, settings.trainer).renderer:
        values["renderer"] = {"name": renderer}
    return values


def _model(settings: Settings, model: Path | None) -> dict[str, Any]:
    feature, layout = settings.feature, settings.layout
    values: dict[str, Any] = {
        "name": str(model),
        "seq_len": settings.data.seq_len,
        "optimization_dtype": settings.dtype.value,
        "compile": {"fullgraph": feature.fullgraph} if feature.compile else NONE,
        "ac": NONE if feature.ac is ActivationCheckpointing.none else {"mode": feature.ac.value},
        "ac_offloading": {} if feature.act_offload else NONE,
        "optim_cpu_offload": feature.optim_offload,
        "full_offload": feature.full_offload,
        "ep": layout.ep,
        "cp": layout.cp,
    }
    if layout.cp > 1:
        values["cp_style"] = "ulysses"
    if feature.ep_backend is ExpertDispatch.deepep:
        values["ep_comm_backend"] = "deepep"
    return values


def _data(settings: Settings) -> dict[str, Any]:
    data, dataset = settings.data, cast(PrimeRlConf, settings.trainer).dataset
    kind: dict[str, Any] = {"type": "sft", "name": dataset}
    if dataset is None:
        kind = {"type": "fake", "length": "variable", "input_ids": "random"}
    return {
        **kind,
        "seed": data.seed,
        "seq_len": data.seq_len,
        "batch_size": data.global_batch,
        "micro_batch_size": data.micro_batch,
    }


def _optim(settings: Settings) -> dict[str, Any]:
    optim, feature = settings.optim, settings.feature
    clips = not feature.full_offload and feature.ep_backend is not ExpertDispatch.deepep
    return {
        "type": "adamw",
        "lr": optim.lr,
        "weight_decay": optim.weight_decay,
        "max_norm": optim.max_grad_norm if clips else NONE,  # as its validators would have it
    }


def _scheduler(settings: Settings) -> dict[str, Any]:
    warmup = settings.optim.warmup_steps
    if not warmup:
        return {"type": "constant"}
    return {"type": "linear", "warmup_steps": warmup, "decay_steps": 0}


def _checkpoints(settings: Settings, launch: Launch, directory: Path) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if (step := saves_at(settings, launch)) is not None:
        values["ckpt"] = {"interval": step}
    if (earlier := before(settings, launch, directory)) is not None:
        folder = earlier[1] / RUN / "checkpoints" / f"step_{launch.first_step - 1}"
        values["resume"] = {"dir": str(folder)}
    return values


TRAINER: Trainer = PrimeRlTrainer()
