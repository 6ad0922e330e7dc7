"""What ranks import, imported where they are forked from (sft/warm/server.py).

torch and transformers import and build much only when it is first used; what that is was seen by
comparing `sys.modules` before and after a launch. Nothing here may touch CUDA.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import traceback
from pathlib import Path
from types import ModuleType

import torch._dynamo
from torch._dynamo import funcname_cache, trace_rules
from transformers import conversion_mapping

import sft.loop  # noqa: F401
from sft import imported, model

LATE = (
    "torch.distributed.elastic.rendezvous.c10d_rendezvous_backend",
    # by the compiler, in its first graph
    "torch.distributed.tensor.experimental",
    "torch.export._trace",
    "torch._higher_order_ops.passes.inline_invoke_subgraph",
    "torch._inductor.sizevars",
    "torch._export.passes._node_metadata_hook",
    "torch._dynamo.dce_extra_outputs",
    "torch._subclasses.schema_check_mode",
    "torch.fx.experimental.validator",
    "sympy.tensor.tensor",
    "_pytest.raises",  # it asks whether a context manager is pytest's
    "_pytest.recwarn",
)
COMPILED = (
    "sft.",
    "transformers.activations", "transformers.distributed.", "transformers.integrations.moe",
    "torch.nn.functional", "torch.nn.modules.activation", "torch.nn.modules.linear",
    "torch.nn.modules.module", "torch.nn.modules.sparse",
)  # fmt: skip
"""Modules with functions that a compiled layer calls, besides the model's own."""


def trainer() -> None:
    """Import the trainer and what it uses."""
    for name in LATE:
        with contextlib.suppress(ImportError):  # another version has it elsewhere, or not at all
            importlib.import_module(name)
    torch._dynamo.list_backends()
    trace_rules.lookup(len)  # makes the compiler's tables of what it knows
    for name in [name for name in sys.modules if name.startswith(COMPILED)]:
        read_names(sys.modules[name])
    conversion_mapping.get_checkpoint_conversion_mapping("")  # compiles a thousand expressions
    imported.note()


def read_names(module: ModuleType) -> None:
    """Let the compiler read a module's file for the names of functions, as it does to log them."""
    if module.__file__ is not None:
        funcname_cache.get_funcname(module.__file__, 1)


def model_code(config: Path) -> None:
    """Import what the model of a trainer's configuration file needs."""
    try:
        path = json.loads(config.read_text(encoding="utf-8"))["model"]["path"]
        kind = type(model.read_config(Path(path)))
        name = kind.__module__.replace(".configuration_", ".modeling_")
        read_names(importlib.import_module(name))
    except Exception:  # noqa: BLE001 - the ranks will meet it themselves, and report it
        traceback.print_exc()
