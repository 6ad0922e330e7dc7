"""pytorch/torchtitan 0.3: its debug models, by its command line; figures from its event files.

Its options are those of `torchtitan.train --module llama3 --config llama3_debugmodel --help`. It
reads text with a tokenizer of 2,048 tokens, which a checkpoint of the scale nano has.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import sweep
from sweep.facts import Metrics
from sweep.files import write_text
from sweep.schema import Device, MetricsConf, MetricsFormat, Settings, TrainerConf
from sweep.trainers import readers
from sweep.trainers.abilities import lacking, untold
from sweep.trainers.base import Command, Launch, Trainer, before, saves_at, torchrun

MODELS = {
    "llama": ("llama3", "llama3_debugmodel"),
    "qwen3": ("qwen3", "qwen3_debugmodel"),
    "qwen3_moe": ("qwen3", "qwen3_moe_debug"),
    "gpt_oss": ("gpt_oss", "gpt_oss_debugmodel"),
}
FEATURES = ("compile", "ac", "full_offload", "resume_at")
METRICS = MetricsConf(
    format=MetricsFormat.tensorboard,
    path="tb",
    fields={
        "loss": "loss_metrics/global_avg_loss",
        "grad_norm": "grad_norm",
        "lr": "lr/AdamW",
        "step_seconds": "time_metrics/end_to_end(s)",
        "peak_memory_gib": "memory/max_reserved(GiB)",
    },
)


@dataclass
class TorchtitanConf(TrainerConf):
    """pytorch/torchtitan."""

    name: str = "torchtitan"
    adapter: str = "torchtitan"


class TorchtitanTrainer(Trainer):
    """Translates a case into torchtitan's options."""

    def unavailable(self, settings: Settings) -> str | None:
        """What it has no model or option for, and what it needs to run at all."""
        needs = (
            (settings.arch.name in MODELS, f"no such model; it has {', '.join(MODELS)}"),
            (
                settings.device is not Device.cpu,
                "it needs a GPU: without one it still calls torch.cuda.set_device",
            ),
            (
                settings.trainer.python is not None or find_spec("torchtitan") is not None,
                "not installed; trainer.python names an interpreter that has it",
            ),
            (find_spec("tensorboard") is not None, "its figures need: pip install tensorboard"),
            (settings.scale.name == "nano", "its debug models have 2048 tokens: say scale=nano"),
            (settings.layout.nodes == 1, "this adapter starts it on one node"),
        )
        missing = next((why for met, why in needs if not met), None)
        reason = lacking(settings, None, None, FEATURES) or untold(
            settings, lambda name: name == "compile_backend"
        )
        return reason or (f"trainer=torchtitan: {missing}" if missing else None)

    def needs_checkpoint(self, settings: Settings) -> bool:
        """For its tokenizer alone: torchtitan builds its models itself."""
        return True

    def command(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> Command:
        """Write the text that it learns; run it on world_size ranks."""
        write_text(directory / "text" / "train.jsonl", _texts())
        words = _words(settings, launch, directory, model)
        argv = torchrun(settings, directory, ["-m", "torchtitan.train", *words])
        return Command(argv, settings.trainer.env)

    def metrics(self, settings: Settings, directory: Path) -> Metrics:
        """Its event files."""
        return readers.read(METRICS, directory)

    def last_step(self, settings: Settings, directory: Path) -> int:
        """From the end of what its reader reads."""
        return readers.last_step(METRICS, directory)


def _words(settings: Settings, launch: Launch, directory: Path, model: Path | None) -> list[str]:
    module, name = MODELS[settings.arch.name]
    options = {
        "module": module,
        "config": name,
        "hf-assets-path": model,
        "dump-folder": directory,
        "dataloader.dataset": "c4_test",  # the only one of its data sets that takes a local folder
        "dataloader.dataset-path": directory / "text",
        "metrics.log-freq": 1,
        "metrics.save-tb-folder": "tb",
        "debug.seed": settings.seed,
        **_training(settings),
        **_parallelism(settings),
        **_checkpoint(settings, launch, directory),
    }
    words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
    flags = {
        "metrics.enable-tensorboard": True,
        "debug.deterministic": True,
        "compile.enable": settings.feature.compile,
        # which its exchange of tokens between experts refuses
        "training.disable-cuda-graphs": settings.layout.ep > 1,
        "training.enable-cpu-offload": settings.feature.full_offload,
        **_saving(settings, launch),
    }
    words += [f"--{flag}" for flag, is_on in flags.items() if is_on]
    checkpointing = settings.feature.ac.value  # a subcommand, and so the last word
    return [*words, f"activation-checkpoint:{checkpointing}"]


def _training(settings: Settings) -> dict[str, object]:
    data, optim, dtype = settings.data, settings.optim, settings.dtype
    group = "optimizer.param-groups.0.optimizer-kwargs"
    values: dict[str, object] = {
        "training.steps": settings.steps,
        "training.seq-len": data.seq_len,
        "training.local-batch-size": data.micro_batch,
        "training.global-batch-size": data.global_batch,
        "training.max-norm": optim.max_grad_norm,
        "training.dtype": dtype.value,
        "training.mixed-precision-param": dtype.value,
        f"{group}.lr": optim.lr,
        f"{group}.weight-decay": optim.weight_decay,
        "lr-scheduler.warmup-steps": optim.warmup_steps,
        "lr-scheduler.min-lr-factor": 1.0,  # the learning rate stays
    }
    if settings.feature.compile_backend is not None:
        values["compile.backend"] = settings.feature.compile_backend
    return values


def _parallelism(settings: Settings) -> dict[str, object]:
    layout = settings.layout
    values: dict[str, object] = {
        "parallelism.data-parallel-shard-degree": layout.dp_shard,
        "parallelism.context-parallel-degree": layout.cp,
        "parallelism.expert-parallel-degree": layout.ep,
    }
    if layout.cp > 1:  # its default is for another attention than its debug models have
        values["parallelism.context-parallel-load-balancer"] = "None"
    return values


def _checkpoint(settings: Settings, launch: Launch, directory: Path) -> dict[str, object]:
    step, earlier = saves_at(settings, launch), before(settings, launch, directory)
    values: dict[str, object] = {"checkpoint.interval": step or settings.steps}
    if earlier is not None:
        saved = earlier[1] / "checkpoint" / f"step-{launch.first_step - 1}"
        values["checkpoint.initial-load-path"] = saved
    return values


def _saving(settings: Settings, launch: Launch) -> dict[str, bool]:
    is_first, saves = launch.name == "train", saves_at(settings, launch) is not None
    return {
        "checkpoint.enable": saves or not is_first,
        "checkpoint.load-only": not is_first and not saves,
        "checkpoint.no-initial-load-model-only": not is_first,
    }


def _texts() -> str:
    """Our own source, a file a line: the same in every launch of a sweep."""
    sources = sorted(Path(sweep.__file__).parent.rglob("*.py"))
    return "".join(json.dumps({"text": path.read_text("utf-8")}) + "\n" for path in sources)


TRAINER: Trainer = TorchtitanTrainer()
