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
from sft.report import bits
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


NAMED = 5
"""At most so many parameters are named that did not move, or have no gradient."""


class Movement:
    """Whether parameters moved, from a hash of each (no copy of the model is kept)."""

    def __init__(self, model: nn.Module, ranks: Ranks) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())
        self.ranks = ranks
        self.before = fingerprints(self.parameters)

    def since_last(self) -> Record:
        """Which parameters changed since the last call, and which have no gradient, on any rank.

        `params_moved` is the share of those with a gradient that changed, `params_unmoved` names
        the first that did not, `params_without_gradient` the first that are trained without one.
        """
        after = fingerprints(self.parameters)
        has_gradient = torch.tensor([p.grad is not None for p in self.parameters])
        seen = torch.stack([(after != self.before).cpu(), has_gradient]).to(
            self.ranks.device, torch.float64
        )
        moved, trained = self.ranks.max(seen).bool().tolist()
        self.before = after
        without = [name for name, t in zip(self.names, trained, strict=True) if not t]
        return movement(self.names, trained, moved) | {"params_without_gradient": without[:NAMED]}


def movement(names: list[str], trained: list[bool], moved: list[bool]) -> Record:
    """The share of the trained parameters that moved, and the names of the first that did not."""
    still = [name for name, t, m in zip(names, trained, moved, strict=True) if t and not m]
    share = 1 - len(still) / sum(trained) if any(trained) else 0.0
    return {"params_moved": share, "params_unmoved": still[:NAMED]}


@torch.no_grad()
def fingerprints(parameters: Iterable[Tensor]) -> Tensor:
    """[parameters] hashes of what this rank holds of each, by which one that moved is known."""
    return torch.stack([bits.hashed(local(parameter)) for parameter in parameters])
