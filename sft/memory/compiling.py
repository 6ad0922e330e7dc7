"""Decoder layers compiled one by one, with the compiler's own counts."""

from __future__ import annotations

import functools
import logging

import torch

from sft.config import MemoryConfig
from sft.memory import Forward
from sft.report import counters

KINDS_OF_LAYER = 64
"""Graphs kept for one function. All layers share it, and a model has more kinds than torch's 8."""


def backend(memory: MemoryConfig, device: torch.device) -> str:
    """What was asked for; else inductor, and on the CPU what captures the same graphs fastest.

    `eager` runs a captured graph by torch's own kernels. Selective checkpointing is the
    partitioner's work, which `eager` has none of.
    """
    if memory.compile_backend is not None:
        return memory.compile_backend
    if device.type != "cpu":
        return "inductor"
    return "aot_eager" if memory.ac == "selective" else "eager"


def compiled(forward: Forward, memory: MemoryConfig, device: torch.device) -> Forward:
    """A layer's forward, compiled when it is first called; with `fullgraph`, a break is an error.

    Past the limit of graphs torch would run the layer uncompiled and say nothing: an error, here.
    How many tokens reach an expert is known only when they do, and is traced as an unknown.
    """
    import torch._dynamo

    # transformers swaps the experts' sharded weights for local ones, and back
    torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    torch._dynamo.config.recompile_limit = KINDS_OF_LAYER
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    count_breaks()
    return torch.compile(forward, backend=backend(memory, device), fullgraph=memory.fullgraph)


class BreakCounter(logging.Handler):
    """Counts what the compiler logs as graph breaks, whether or not the log is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        counters.add("graph_breaks", 1)


@functools.cache
def count_breaks() -> None:
    """Listen to the compiler's log; its statistics leave out breaks at branches on data."""
    log = torch._logging.getArtifactLogger("torch._dynamo.symbolic_convert", "graph_breaks")
    if not log.isEnabledFor(logging.DEBUG):  # TORCH_LOGS did not ask to show it
        log.setLevel(logging.DEBUG)
        log.propagate = False
    log.addHandler(BreakCounter())


def count_graphs() -> None:
    """Count what the compiler did since the last call, where it is at work."""
    from torch._dynamo import utils

    counters.add("graph_breaks", 0)  # a count of none, not none counted
    counters.add("graphs_captured", utils.counters["stats"]["unique_graphs"])
    compiled_now = utils.get_compilation_metrics()
    counters.add("compile_seconds", sum(entry.duration_us or 0 for entry in compiled_now) / 1e6)
    kept = utils.counters["inductor"]
    counters.add("compile_cache_hits", kept["fxgraph_cache_hit"])
    missed = kept["fxgraph_cache_miss"] + kept["fxgraph_cache_bypass"]
    counters.add("compile_cache_misses", missed)
    forward = [entry for entry in compiled_now if entry.is_forward]
    counters.add("recompiles", sum(_recompiled(entry.compile_id) for entry in forward))
    utils.counters.clear()
    utils.clear_compilation_metrics()


def _recompiled(compile_id: str | None) -> bool:
    """Whether a compile id, frame/attempt, is of a frame compiled before."""
    return bool(compile_id) and not str(compile_id).partition("/")[2].startswith("0")
