"""What a rank holds of a tensor that FSDP or expert parallelism shards."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import cast

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, on every rank; all of them must ask for it."""
    if not isinstance(tensor, DTensor):
        return tensor
    on_device = tensor.to(tensor.device_mesh.device_type)  # it may wait on the host
    return cast(DTensor, on_device).full_tensor()


def replicas(tensor: Tensor) -> int:
    """How many ranks of the world hold the same values of a tensor."""
    if not isinstance(tensor, DTensor):
        return _world_size()
    mesh = tensor.device_mesh
    # experts that FSDP shards further have a `_StridedShard`, which is no `Shard`
    shards = [
        mesh.size(dim) for dim, place in enumerate(tensor.placements) if not place.is_replicate()
    ]
    return _world_size() // math.prod(shards)


def sharded(parameters: Iterable[nn.Parameter]) -> int:
    """Values of parameters of which each rank holds a part only."""
    world = _world_size()
    return sum(parameter.numel() for parameter in parameters if replicas(parameter) < world)


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
