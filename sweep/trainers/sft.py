"""The built-in trainer: `torchrun -m sft CONFIG.json`, which writes metrics.jsonl."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweep.case.labels import plain
from sweep.errors import RequestError
from sweep.schema import (
    Attention,
    Device,
    Dtype,
    ExpertDispatch,
    LinearAttention,
    Settings,
    TrainerConf,
)
from sweep.trainers import definitions, sft_faults
from sweep.trainers.base import Launch, Trainer, before, saves_at
from sweep.trainers.module import ModuleTrainer
from sweep.trainers.template import SWITCHES

KERNELS = ("attention", "linear_attention")
MEMORY = (*(key for key in SWITCHES if key not in KERNELS), "compile_backend")
COMPILE_BACKENDS = ("eager", "aot_eager", "inductor")


@dataclass
class SftConf(TrainerConf):
    """The built-in trainer."""

    name: str = "sft"
    adapter: str = "sft"


class SftTrainer(ModuleTrainer):
    """Translates a case into the trainer's config file."""

    module = "sft"

    def unavailable(self, settings: Settings) -> str | None:
        """What the trainer would refuse, on this machine or in this layout.

        Raises RequestError for what it would refuse anywhere.
        """
        feature, layout = settings.feature, settings.layout
        _check(settings)
        if reason := _no_deepep(settings) or _no_flex(settings) or _no_fla(settings):
            return reason
        if feature.full_offload and layout.world_size == 1:
            return "full offloading is FSDP's, which one process does not have"
        if not feature.packed and layout.world_size > 1:
            return "documents are computed one by one, of which ranks have different numbers"
        return None

    def config(
        self, settings: Settings, launch: Launch, directory: Path, model: Path | None
    ) -> dict[str, Any]:
        """Its settings, in its own words."""
        feature, optim = (plain(settings)[key] for key in ("feature", "optim"))
        layout = settings.layout
        return {
            "model": {
                "path": str(model),
                "dtype": settings.dtype.value,
                "attention_dropout": settings.attention_dropout,
                **{key: feature[key] for key in KERNELS},
            },
            "data": {"path": None, **asdict(settings.data), "packed": settings.feature.packed},
            "optim": optim,
            "layout": {"dp_shard": layout.dp_shard, "cp": layout.cp, "ep": layout.ep},
            "memory": {key: feature[key] for key in MEMORY},
            "checkpoint": _checkpoint(settings, launch, directory),
            "steps": settings.steps,
            "seed": settings.seed,
            "output_dir": str(directory),
            "profile_step": settings.profile_step,
            "fault": settings.fault,
        }

    def oracle(self, settings: Settings) -> dict[str, Any]:
        """The case says what decays; documents are cut to a row and packed in order."""
        own = {"decay": settings.optim.decay.value}
        return definitions.of_case(settings) | definitions.of_our_data(settings) | own


def _no_deepep(settings: Settings) -> str | None:
    """What DeepEP lacks for a case that asks for it."""
    if settings.feature.ep_backend is not ExpertDispatch.deepep:
        return None
    if find_spec("deep_ep") is None:
        return "DeepEP dispatch needs the deep_ep package, which is not installed"
    if settings.layout.ep == 1:
        return "DeepEP dispatch needs experts on more ranks than one"
    if settings.dtype is not Dtype.bfloat16:
        return "DeepEP dispatch moves bfloat16 only: say dtype=bfloat16"
    return None


def _no_flex(settings: Settings) -> str | None:
    """What FlexAttention lacks for a case that asks for it."""
    if settings.feature.attention is not Attention.flex:
        return None
    if settings.device is Device.cpu:
        return "FlexAttention has no backward on a CPU"
    if settings.arch.indexer:
        return "an indexer's picks need masks written out, which FlexAttention has none of"
    if settings.attention_dropout:
        return "FlexAttention drops no attention weights"
    return None


def _no_fla(settings: Settings) -> str | None:
    """What flash-linear-attention lacks for a case that asks for it."""
    if settings.feature.linear_attention is not LinearAttention.fla:
        return None
    if not settings.arch.delta_net:
        return f"arch={settings.arch.name} has no gated delta net"
    if find_spec("fla") is None:
        return "its kernels are in the package flash-linear-attention, which is not installed"
    if settings.device is Device.cpu:
        return "flash-linear-attention's kernels need a GPU"
    return None


def _check(settings: Settings) -> None:
    backend = settings.feature.compile_backend
    if backend not in (None, *COMPILE_BACKENDS):
        choices = ", ".join(COMPILE_BACKENDS)
        raise RequestError(f"feature.compile_backend={backend}: choose from {choices}")
    if settings.fault is not None:
        sft_faults.check(settings.fault)


def _checkpoint(settings: Settings, launch: Launch, directory: Path) -> dict[str, Any]:
    """Each launch saves what the next one goes on from."""
    step, earlier = saves_at(settings, launch), before(settings, launch, directory)
    folder = None
    if earlier is not None:
        folder = str(earlier[1] / "checkpoints" / f"step_{launch.first_step - 1}")
    return {"save_at": [] if step is None else [step], "resume_from": folder}


TRAINER: Trainer = SftTrainer()
