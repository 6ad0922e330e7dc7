"""What a step reports: one JSON line in `metrics.jsonl`."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sft.ranks import Ranks
from sft.report.shards import local

Record = dict[str, Any]


def path_in(output_dir: str | Path) -> Path:
    """The file of a run's records."""
    return Path(output_dir) / "metrics.jsonl"


def read(output_dir: str | Path) -> list[Record]:
    """The records of a run, step by step."""
    lines = path_in(output_dir).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


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


UNMOVED_NAMED = 5
"""So many of the parameters that did not move are named; their share tells how many they are."""


class Movement:
    """Whether parameters moved, from a fingerprint of each (no copy of the model is kept)."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())
        self.ranks = ranks
        self.before = fingerprints(self.parameters)

    def since_last(self) -> Record:
        """Which parameters with a gradient changed on some rank since the last call.

        `params_moved` is their share, `params_unmoved` names the first that did not.
        """
        after = fingerprints(self.parameters)
        trained = torch.tensor([p.grad is not None for p in self.parameters])
        moved = self.ranks.max(
            ((after != self.before).cpu() & trained).to(self.ranks.device, torch.float64)
        )
        self.before = after
        return movement(self.names, trained.tolist(), moved.bool().tolist())


def movement(names: list[str], trained: list[bool], moved: list[bool]) -> Record:
    """The share of the trained parameters that moved, and the names of the first that did not."""
    still = [name for name, t, m in zip(names, trained, moved, strict=True) if t and not m]
    share = 1 - len(still) / sum(trained) if any(trained) else 0.0
    return {"params_moved": share, "params_unmoved": still[:UNMOVED_NAMED]}


@torch.no_grad()
def fingerprints(parameters: Iterable[Tensor]) -> Tensor:
    """[parameters] sums of what this rank holds of each, by which one that moved is known."""
    return torch.stack([fingerprint(local(parameter)) for parameter in parameters])


def fingerprint(values: Tensor) -> Tensor:
    """A float64 sum weighted by place, so that values that trade places are seen too."""
    flat = values.flatten().double()
    weights = torch.linspace(1.0, 2.0, len(flat), dtype=torch.float64, device=flat.device)
    return flat @ weights if len(flat) else flat.sum()
