"""transformers' own exchange of tokens between experts, unchanged but for a count of what came."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor
from transformers.distributed.expert_parallel import AllToAllEP, EPImplementationInterface

NAME = "observed_all_to_all"
_received = 0


class ObservedAllToAll(AllToAllEP):
    """`all_to_all`, observed where it sends the results back."""

    def _combine_tokens(self, expert_output: Tensor, state: Any) -> Tensor:
        global _received
        rank = dist.get_rank(self.ep_mesh.get_group())
        _received += sum(state.recv_sizes) - state.recv_sizes[rank]
        return super()._combine_tokens(expert_output, state)


def register() -> None:
    """Make it known to transformers' `DistributedConfig`."""
    EPImplementationInterface.register(NAME, ObservedAllToAll)


def take() -> int:
    """Tokens that reached this rank's experts from other ranks since the last call."""
    global _received
    taken, _received = _received, 0
    return taken
