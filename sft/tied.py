"""Tied weights under FSDP2, where the ranks do not divide their first dimension.

transformers shards embedding and head before it ties them, so that one tensor has two FSDP
parameters. Each pads an uneven shard into a buffer of its own, and the optimizer then updates one
while the other is gathered: see docs/upstream/tied-weights-uneven-shards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule


def share_buffers(model: nn.Module) -> int:
    """Give the FSDP parameters of one tied weight one buffer; returns how many were mended.

    To be called after loading and before the first forward. Uses FSDP2's private state: there is
    no public way to say that two modules share a parameter across groups.
    """
    owners: defaultdict[int, list[Any]] = defaultdict(list)
    for parameter in fsdp_parameters(model):
        parameter.reset_sharded_param()
        owners[id(parameter.sharded_param)].append(parameter)
    mended = 0
    for *earlier, last in owners.values():  # the last one padded is the one that is updated
        for parameter in earlier:
            if _address(parameter._sharded_param_data) != _address(last._sharded_param_data):
                parameter._sharded_param_data = last._sharded_param_data
                mended += 1
    return mended


def fsdp_parameters(model: nn.Module) -> Iterator[Any]:
    """What FSDP2 keeps about each parameter that it shards (private to torch)."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state = module._get_fsdp_state()
            # torch 2.13 allows several groups a module
            groups = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            for group in filter(None, groups):
                yield from group.fsdp_params


def _address(data: Any) -> int:
    return int(data.untyped_storage().data_ptr())
