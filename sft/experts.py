"""Expert parallelism: transformers' token exchange, counted."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.distributed.expert_parallel import AllToAllEP, EPImplementationInterface

from sft import counters

NAME = "counted_all_to_all"


class CountedAllToAll(AllToAllEP):
    """Counts the tokens that reach this rank's experts from other ranks."""

    def _dispatch_tokens(self, *args: Tensor) -> tuple[Any, ...]:
        tokens, expert_ids, weights, state = super()._dispatch_tokens(*args)
        own = state.recv_sizes[self.ep_mesh.get_local_rank()]
        counters.add("ep_tokens_received", sum(state.recv_sizes) - own)
        counters.add("ep_tokens_computed", sum(state.recv_sizes))
        return tokens, expert_ids, weights, state


def register() -> None:
    """Make the implementation known to transformers' `DistributedConfig`."""
    EPImplementationInterface.register(NAME, CountedAllToAll)
