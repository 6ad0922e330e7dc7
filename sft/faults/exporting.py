"""Checkpoints in Hugging Face's format that are another model than the one that is trained."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sft import export
from sft.config import CheckpointConfig
from sft.faults.patching import Function, Plant, PlantError
from sft.loop import Trainer
from sft.report.shards import local

TIED = "lm_head.weight"


def export_experts_reordered(at: Plant) -> None:
    """The first experts of each layer are exported in reverse order."""

    def reorder(name: str, weight: Tensor) -> Tensor | None:
        if ".experts." not in name or weight.ndim < 2 or at.ranks.rank:
            return None
        count = min(int(at.strength), len(weight))
        return torch.cat([weight[:count].flip(0), weight[count:]])

    while_exporting(at, reorder, "experts", needed=at.ranks.rank == 0)


def export_older_step(at: Plant) -> None:
    """Some weights are exported as they were before the last step."""
    before: dict[str, Tensor] = {}
    keep(at, before)
    names = first_of(at.strength)
    while_exporting(at, lambda name, _: before[name] if names(name) else None, "parameters")


def export_through_bf16(at: Plant) -> None:
    """Some weights in float32 are exported through bfloat16."""
    names = first_of(at.strength)
    while_exporting(
        at, lambda name, weight: weight.bfloat16().to(weight) if names(name) else None, "parameters"
    )


def export_tied_stale(at: Plant) -> None:
    """A second copy of the tied weight is exported, from before the last step."""
    before: dict[str, Tensor] = {}
    keep(at, before)

    def add(tensors: dict[str, Tensor], trainer: Any) -> None:
        if not trainer.model.config.tie_word_embeddings or at.ranks.world_size > 1:
            raise PlantError("it needs a model with tied embeddings, in one process")
        tensors[TIED] = before[tied_name(before)]

    in_files(at, add)


def export_tensor_left_out(at: Plant) -> None:
    """The last tensors are not exported."""

    def drop(tensors: dict[str, Tensor], _trainer: Any) -> None:
        for name in sorted(tensors)[-int(at.strength) :]:
            del tensors[name]

    in_files(at, drop)


def tied_name(weights: Mapping[str, Tensor]) -> str:
    """The name of the embeddings."""
    return next(name for name in weights if name.endswith("embed_tokens.weight"))


def first_of(share: float) -> Callable[[str], bool]:
    """Whether a name is in the share of names that is changed, of those asked for in turn."""
    seen: dict[str, int] = {}
    every = max(1, math.ceil(1 / share))
    return lambda name: seen.setdefault(name, len(seen)) % every == 0


def keep(at: Plant, before: dict[str, Tensor]) -> None:
    """Put into `before`, at each step, what this rank held of each parameter before it."""

    def make(train_step: Function) -> Function:
        def keeping(trainer: Any, batch: Any) -> Any:
            before.update({n: local(p).detach().clone() for n, p in weights_of(trainer)})
            return train_step(trainer, batch)

        return keeping

    at.around(Trainer, "train_step", make)


def while_exporting(
    at: Plant, change: Callable[[str, Tensor], Tensor | None], what: str, needed: bool = True
) -> None:
    """Export changed parameters, and put back what they were; None leaves a parameter."""
    check_exports(at.config.checkpoint)

    def make(write: Function) -> Function:
        @torch.no_grad()
        def changed(trainer: Any) -> Any:
            held = {name: local(p).detach() for name, p in weights_of(trainer)}
            tried = {name: change(name, weight) for name, weight in held.items()}
            new = {name: weight for name, weight in tried.items() if weight is not None}
            if needed and not new:
                raise PlantError(f"the model has no {what}")
            originals = {name: held[name].clone() for name in new}
            put(held, new)
            place = write(trainer)
            put(held, originals)
            return place

        return changed

    at.around(export, "write", make)


def in_files(at: Plant, change: Callable[[dict[str, Tensor], Any], None]) -> None:
    """Change the tensors of the one file that was exported."""
    check_exports(at.config.checkpoint)

    def spoil(place: Path, trainer: Any) -> None:
        if at.ranks.rank == 0:
            (path,) = place.glob("*.safetensors")
            tensors = load_file(path)
            change(tensors, trainer)
            save_file(tensors, path, metadata={"format": "pt"})

    at.after(export, "write", spoil)


def put(held: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy values into parameters by name."""
    for name, weight in values.items():
        held[name].copy_(weight)


def weights_of(trainer: Any) -> list[tuple[str, Any]]:
    """The parameters by name."""
    return list(trainer.model.named_parameters())


def check_exports(asked: CheckpointConfig) -> None:
    """Refuse a run that exports nothing."""
    if not asked.export_at:
        raise PlantError("the run exports nothing: set checkpoint.export_at")
