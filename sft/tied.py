"""Tied weights under FSDP2, where the ranks do not divide their first dimension.

transformers shards embedding and head before it ties them, so that one tensor has two FSDP
parameters. Each pads an uneven shard into a buffer of its own, and the optimizer then updates one
while the other is gathered: see docs/upstream/tied-weights-uneven-shards.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from torch import nn

from sft import fsdp


def share_buffers(model: nn.Module) -> int:
    """Give the FSDP parameters of one tied weight one buffer; returns how many were fixed.

    To be called after loading and before the first forward.
    """
    owners: defaultdict[int, list[Any]] = defaultdict(list)
    for parameter in fsdp.parameters(model):
        parameter.reset_sharded_param()
        owners[id(parameter.sharded_param)].append(parameter)
    fixed = 0
    for *earlier, last in owners.values():  # the last one padded is the one that is updated
        for parameter in earlier:
            if _address(parameter._sharded_param_data) != _address(last._sharded_param_data):
                parameter._sharded_param_data = last._sharded_param_data
                fixed += 1
    return fixed


def _address(data: Any) -> int:
    return int(data.untyped_storage().data_ptr())
