"""transformers' own `Trainer`: `torchrun -m hf_sft CONFIG.json`, which writes metrics.jsonl."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, cast

from sweep.schema import ActivationCheckpointing, Device, Settings, TrainerConf
from sweep.trainers import definitions
from sweep.trainers.abilities import lacking, untold
from sweep.trainers.base import Launch, Trainer, before, exports_at, saves_at
from sweep.trainers.module import ModuleTrainer
from sweep.trainers.template import accumulation

FEATURES = ("compile", "ac=full", "full_offload", "resume_at")
NOT_FULL_ATTENTION = {
    "gpt_oss": "attention sinks and sliding windows",
    "laguna": "sliding windows",
    "qwen3_5_dense": "recurrent layers",
    "qwen3_5_moe": "recurrent layers",
    "qwen4_exp": "recurrent layers",
    "nemotron_h": "recurrent layers",
    "deepseek_v4": "compressed attention",
    "glm_moe_dsa": "an indexer's picks",
}
"""What `supports_context_parallel` of transformers 5.24 says no to, and why."""


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


class HfTrainer(ModuleTrainer):
    """Translates a case into `TrainingArguments` and `DistributedConfig`."""

    module = "hf_sft"

    def unavailable(self, settings: Settings) -> str | None:
        """What transformers or accelerate would refuse, or has no option for."""
        reasons = (
            lacking(settings, None, None, FEATURES),
            untold(settings, lambda name: name == "compile_backend"),
            _layout(settings),
            _feature(settings),
        )
        return next(filter(None, reasons), None)

    def config(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> dict[str, Any]:
        """`TrainingArguments`, and who shards the model."""
        earlier, resume_from = before(settings, launch, directory), None
        if earlier is not None:
            resume_from = str(earlier[1] / "checkpoints" / f"checkpoint-{launch.first_step - 1}")
        return {
            "model": {"path": str(model), "dtype": settings.dtype.value},
            "sharding": _sharding(settings),
            "cp_size": settings.layout.cp,
            "data": {"seq_len": settings.data.seq_len},
            "arguments": _arguments(settings, launch, directory),
            "resume_from": resume_from,
            "export_at": exports_at(settings, launch),
            "export": str(self.export(settings, directory)),
            "metrics": str(directory / "metrics.jsonl"),
        }

    def export(self, settings: Settings, directory: Path) -> Path:
        """As `save_pretrained` writes it."""
        return directory / "export"

    def oracle(self, settings: Settings) -> dict[str, Any]:
        """Its schedule begins at zero; norms and biases do not decay."""
        own = {"warmup": "from_zero", "decay": "no_norms_no_biases"}
        return definitions.of_case(settings) | definitions.of_our_data(settings) | own


def _layout(settings: Settings) -> str | None:
    layout = settings.layout
    if layout.nodes > 1:
        return "hf_sft runs on one node"
    sharding = cast(HfTrainerConf, settings.trainer).sharding
    if layout.ep > 1 and sharding is HfSharding.accelerate:
        return "accelerate has no expert parallelism; trainer.sharding=transformers has it"
    return _context_parallel(settings) if layout.cp > 1 else None


def _context_parallel(settings: Settings) -> str | None:
    if settings.layout.ep > 1:
        return "transformers' DistributedConfig, which has expert parallelism, has no context one"
    if settings.device is Device.cpu:
        return (
            "accelerate has context parallelism on accelerators only: ParallelismConfig is refused "
            "with DistributedType.MULTI_CPU"
        )
    arch = settings.arch.name
    why = NOT_FULL_ATTENTION.get(arch)
    return f"transformers' context parallelism refuses {arch}: {why}" if why else None


def _feature(settings: Settings) -> str | None:
    feature = settings.feature
    if feature.resume_at and _sharding(settings) is not None:
        return "Trainer does not resume a model that transformers shards while loading it"
    if feature.fullgraph:
        return "TrainingArguments compiles without fullgraph"
    if feature.full_offload and settings.device is Device.cpu:
        return "on a CPU there is nothing to offload from"
    if feature.full_offload and settings.layout.world_size == 1:
        return "full offloading is FSDP's, which one process does not have"
    return None


def _sharding(settings: Settings) -> dict[str, Any] | None:
    """`DistributedConfig`'s; None where accelerate shards, or nobody."""
    layout = settings.layout
    conf = cast(HfTrainerConf, settings.trainer)
    if layout.world_size == 1 or layout.cp > 1 or conf.sharding is HfSharding.accelerate:
        return None
    return {
        "fsdp_size": layout.dp_shard,
        "ep_size": layout.ep,
        "ep_implementation": _exchange(settings) if layout.ep > 1 else "auto",
        "fsdp_cpu_offload": settings.feature.full_offload,
    }


def _exchange(settings: Settings) -> str:
    """Observing it would break a compiled graph."""
    return "all_to_all" if settings.feature.compile else "observed_all_to_all"


def _arguments(settings: Settings, launch: Launch, directory: Path) -> dict[str, Any]:
    data, optim, feature = settings.data, settings.optim, settings.feature
    save_at, on_cpu = saves_at(settings, launch), settings.device is Device.cpu
    return {
        "output_dir": str(directory / "checkpoints"),
        "max_steps": settings.steps,
        "per_device_train_batch_size": data.micro_batch,
        "gradient_accumulation_steps": accumulation(settings),
        "learning_rate": optim.lr,
        "weight_decay": optim.weight_decay,
        "max_grad_norm": optim.max_grad_norm,
        "warmup_steps": optim.warmup_steps,
        "lr_scheduler_type": "constant_with_warmup",
        "seed": settings.seed,
        "data_seed": data.seed,
        "save_strategy": "no" if save_at is None else "steps",
        "save_steps": save_at or settings.steps,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # or a loss that is NaN is logged as a finite one
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": on_cpu,
        "dataloader_pin_memory": not on_cpu,
        "activation_checkpointing": feature.ac is ActivationCheckpointing.full,
        "torch_compile": feature.compile,
        "torch_compile_backend": _backend(settings) if feature.compile else None,
        **_fsdp(settings),
    }


def _backend(settings: Settings) -> str:
    """As the built-in trainer chooses: on a CPU, the graphs are captured and run as they are."""
    automatic = "eager" if settings.device is Device.cpu else "inductor"
    return settings.feature.compile_backend or automatic


def _fsdp(settings: Settings) -> dict[str, Any]:
    layout = settings.layout
    conf = cast(HfTrainerConf, settings.trainer)
    if layout.world_size == 1 or (layout.cp == 1 and conf.sharding is HfSharding.transformers):
        return {}
    return {
        "fsdp": True,
        "fsdp_config": {"version": 2, "cpu_offload": settings.feature.full_offload},
    }


TRAINER: Trainer = HfTrainer()
