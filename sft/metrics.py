"""What a step reports: one JSON line in `metrics.jsonl`."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sft.gradients import local
from sft.ranks import Ranks

Record = dict[str, Any]


def write(record: Record, path: Path) -> None:
    """Append a record, whole, so that a reader never sees half of one that was finished."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    print(
        f"step {record['step']} loss {record['loss']:.6f} grad_norm {record['grad_norm']:.6f} "
        f"lr {record['lr']:.2e} tokens {record['tokens']} seconds {record['step_seconds']:.2f}",
        flush=True,
    )


def peak_memory_gib(ranks: Ranks) -> float:
    """The most memory that any rank used: of its accelerator, or of its process on the CPU."""
    if ranks.device.type == "cpu":
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10  # KiB on Linux
    else:
        used = torch.accelerator.max_memory_allocated(ranks.device)
    return worst(used / 2**30, ranks)


def worst(figure: float, ranks: Ranks) -> float:
    """The largest of the ranks' figures."""
    return ranks.max(torch.tensor(figure, device=ranks.device)).item()


class Movement:
    """Whether parameters moved, from a fingerprint of each (no copy of the model is kept)."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.ranks = ranks
        self.before = self.fingerprints()

    @torch.no_grad()
    def fingerprints(self) -> Tensor:
        """[parameters] sums weighted by place, so that values that trade places are seen too."""
        return torch.stack([fingerprint(local(p)) for p in self.parameters])

    def since_last(self) -> float:
        """The share of parameters with a gradient that changed on some rank since the last call."""
        after = self.fingerprints()
        trained = torch.tensor([p.grad is not None for p in self.parameters]).to(after.device)
        moved = self.ranks.max(((after != self.before) & trained).float().to(self.ranks.device))
        self.before = after
        return (moved.sum() / trained.sum().clamp(min=1).to(moved.device)).item()


def fingerprint(values: Tensor) -> Tensor:
    """A float64 scalar that changes when the values do."""
    flat = values.flatten().double()
    weights = torch.linspace(1.0, 2.0, len(flat), dtype=torch.float64, device=flat.device)
    return flat @ weights if len(flat) else flat.sum()
