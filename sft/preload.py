"""What ranks import, imported where they are forked from (sft/server.py).

torch and transformers import and build much only when it is first used; what that is was seen by
comparing `sys.modules` before and after a launch. Nothing here may touch CUDA.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import traceback
from pathlib import Path

import torch._dynamo
from transformers import conversion_mapping

import sft.loop  # noqa: F401
from sft import model

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


def trainer() -> None:
    """Import the trainer and what it uses."""
    for name in LATE:
        with contextlib.suppress(ImportError):  # another version has it elsewhere, or not at all
            importlib.import_module(name)
    torch._dynamo.list_backends()
    conversion_mapping.get_checkpoint_conversion_mapping("")  # compiles a thousand expressions


def model_code(config: Path) -> None:
    """Import what the model of a trainer's configuration file needs."""
    try:
        path = json.loads(config.read_text(encoding="utf-8"))["model"]["path"]
        kind = type(model.read_config(Path(path)))
        importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
    except Exception:  # noqa: BLE001 - the ranks will meet it themselves, and report it
        traceback.print_exc()
