"""Counts that prove a layout or a feature was really on, kept per step and rank.

| counter | counts |
| --- | --- |
| `cp_bytes_exchanged` | bytes sent to other ranks of a sequence, in backward as well |
| `cp_sequence_share` | the share of each sequence that the rank computed |
| `params_sharded` | values of parameters of which the rank holds a part only |
| `ep_tokens_received` | tokens that reached the rank's experts from other ranks |
| `ep_tokens_computed` | tokens that its experts computed |
| `indexer_keys_seen`, `indexer_keys_dropped` | keys that indexers chose from, and did not pick |
| `choices_fingerprint` | which experts and keys were chosen: see `sft/context/choices.py` |
| `flex_attention_calls` | attention layers computed by FlexAttention, recomputed ones included |
| `fla_calls` | gated delta nets computed by flash-linear-attention, recomputed ones included |
| `recomputed_layers` | decoder layers computed again by activation checkpointing |
| `operators_kept` | results kept by selective checkpointing; compiled, counted in compiling |
| `act_offload_bytes` | bytes of activations moved to the CPU |
| `optim_offload_bytes` | bytes of optimizer states that live on the CPU between steps |
| `params_on_cpu` | bytes of parameters that live on the CPU and are fetched for each layer |
| `graphs_captured`, `graph_breaks`, `recompiles` | of the compiler, in this step |
| `compile_seconds` | what the compiler took in this step |
| `compile_cache_hits`, `compile_cache_misses` | graphs that inductor found compiled, and did not |

A compiler would run Python's side effects once, or break its graph on them; a checkpointed region
may have none. So what is counted inside of a layer is counted by operators, which run whenever the
layer is computed, recomputation included.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor
from torch.library import CustomOpDef

EFFECTS = (
    "act_offload_bytes", "cp_bytes_exchanged", "ep_tokens_received", "fla_calls",
    "flex_attention_calls", "graphs_captured", "indexer_keys_dropped", "operators_kept",
    "optim_offload_bytes", "params_on_cpu", "recomputed_layers",
)  # fmt: skip
"""Reported in any case: what was never counted had no effect, and a check must see that."""

_counts: defaultdict[str, float | Tensor] = defaultdict(float)


def add(name: str, amount: float | Tensor) -> None:
    """Add to a counter of this rank, outside of what is compiled."""
    _counts[name] += amount


def take() -> dict[str, Any]:
    """This rank's counters since the last call; those that were added as vectors are lists."""
    taken = {
        name: count.tolist() if isinstance(count, Tensor) else float(count)
        for name, count in _counts.items()
    }
    _counts.clear()
    return taken


def recomputing() -> bool:
    """Whether backward is under way: what is computed now has been computed before."""
    return torch._C._current_graph_task_id() != -1


def passes_on(operator: CustomOpDef, inputs: int) -> None:
    """Declare that an operator of so many inputs returns a copy of the first, and only notes."""
    others = (None,) * (inputs - 1)
    operator.register_fake(lambda x, *_: torch.empty_like(x))
    operator.register_autograd(lambda _ctx, gradient: (gradient, *others))


def counted(x: Tensor, name: str, amount: float = 1) -> Tensor:
    """`x` (a copy: an operator may not return its input), counted whenever it is computed."""
    return torch.ops.sft.counted(x, name, float(amount))


def counted_marks(x: Tensor, name: str, marks: Tensor) -> Tensor:
    """`x` (a copy), with the number of marked places counted whenever it is computed."""
    return torch.ops.sft.counted_marks(x, name, marks)


@torch.library.custom_op("sft::counted", mutates_args=())
def _counted(x: Tensor, name: str, amount: float) -> Tensor:
    add(name, amount)
    return x.clone()


@torch.library.custom_op("sft::counted_marks", mutates_args=())
def _counted_marks(x: Tensor, name: str, marks: Tensor) -> Tensor:
    add(name, marks.sum())  # stays on the device until the step's end
    return x.clone()


passes_on(_counted, inputs=3)
passes_on(_counted_marks, inputs=3)
