"""A trainer's definitions in the words of oracle/settings.py."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweep.schema import Settings


def of_case(settings: Settings) -> dict[str, Any]:
    """What a case asks for, in the oracle's words; the rest has the oracle's defaults."""
    optim = settings.optim
    return {
        "dtype": settings.dtype.value,
        "lr": optim.lr,
        "warmup_steps": optim.warmup_steps,
        "weight_decay": optim.weight_decay,
        "max_grad_norm": optim.max_grad_norm,
        "aux_loss_coef": optim.aux_loss_coef,
        "router_bias_rate": optim.router_bias_rate,
    }


def of_our_data(settings: Settings) -> dict[str, Any]:
    """The documents that ship with the built-in trainer, in rows in their order."""
    spec = find_spec("sft")
    folders = list(spec.submodule_search_locations or []) if spec else []
    if settings.trainer.tree and settings.trainer.project:
        folders = [str(Path(settings.trainer.project) / "sft")]
    source = Path(folders[0]) / "documents" / "chats.jsonl" if folders else None
    if source is None or not source.is_file():
        return {}
    return {"source": str(source), "max_length": settings.data.seq_len, "order": "rows"}
