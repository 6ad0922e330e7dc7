"""Graphs that break, or are captured again at every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sft.context import attention
from sft.faults.patching import Function, Plant
from sft.loop import Trainer
from sft.moe.experts import CountedAllToAll


def graph_break_added(at: Plant) -> None:
    """Attention leaves the graph, once or more often."""
    at.edit(
        attention,
        "ulysses_attention",
        "    tokens = query.shape[2]",
        "    tokens = query.shape[2]\n"
        + "    torch._dynamo.graph_break()\n    query = query + 0\n" * int(at.strength),
    )


def split_sizes_to_list(at: Plant) -> None:
    """How many tokens go to each rank is read back to Python."""
    at.edit(
        CountedAllToAll,
        "__call__",
        "sizes = counts.sum(1), received.sum(1)",
        "sizes = counts.sum(1), torch.tensor(received.sum(1).tolist(), device=counts.device)",
    )


def recompile_every_step(at: Plant) -> None:
    """A graph is captured for one value of something that changes with the step."""
    step = [0]

    def count(*_: Any) -> None:
        step[0] += 1
        attention._planted_step = str(step[0] // int(at.strength))  # type: ignore[attr-defined]

    def make(attend: Function) -> Function:
        def guarded(query: Tensor, *rest: Any) -> Tensor:
            if attention._planted_step == "never":  # type: ignore[attr-defined]
                query = query + torch.ones_like(query)
            result: Tensor = attend(query, *rest)
            return result

        return guarded

    count()
    at.around(attention, "attend", make)
    at.after(Trainer, "train_step", count)
