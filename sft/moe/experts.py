"""Expert parallelism: transformers' token exchange, counted, and without a break in the graph.

transformers reads the split sizes back to Python in every layer, which breaks a compiled graph.
Here they stay tensors, and the exchange is one operator whose number of rows the compiler does not
have to know. A row of padding at the end means that no rank's experts ever compute nothing.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers.distributed.expert_parallel import EPImplementation, EPImplementationInterface

from sft.context.exchange import named_group
from sft.report import counters

NAME = "counted_all_to_all"


class CountedAllToAll(EPImplementation):
    """Each (token, expert) pair goes to the expert's rank, and the result comes back."""

    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """[tokens, hidden], global expert ids and weights [tokens, k] -> [tokens, hidden]."""
        group, ranks = self.ep_mesh.get_group().group_name, self.ep_mesh.size()
        chosen = top_k_index.flatten()
        order = chosen.argsort()  # by expert, so by rank
        counts = torch.zeros(ranks, self.num_local_experts, dtype=torch.long, device=chosen.device)
        counts.view(-1).scatter_add_(0, chosen, torch.ones_like(chosen))
        received = torch.ops.sft.exchange_counts(counts, group)
        sizes = counts.sum(1), received.sum(1)
        sent = hidden_states[order // top_k_index.shape[1]]
        rows = torch.ops.sft.exchange_rows(sent, *sizes, None, group)
        out = self.experts_forward(
            rows, self.local_ids(received, rows), torch.ones_like(rows[:, :1])
        )
        back = torch.ops.sft.exchange_rows(out, *reversed(sizes), len(chosen), group)
        results = torch.empty_like(back).index_copy(0, order, back)
        weighted = results.view(*top_k_index.shape, -1) * top_k_weights.unsqueeze(-1)
        return weighted.sum(1)

    def local_ids(self, received: Tensor, rows: Tensor) -> Tensor:
        """[rows, 1] the local expert of each received row, the last one for padding."""
        ends = received.flatten().cumsum(0)
        place = torch.searchsorted(ends, torch.arange(len(rows), device=ends.device), right=True)
        ids = place % self.num_local_experts
        return torch.where(place < len(ends), ids, self.num_local_experts - 1).unsqueeze(1)


def register() -> None:
    """Make the implementation known to transformers' `DistributedConfig`."""
    EPImplementationInterface.register(NAME, CountedAllToAll)


@torch.library.custom_op("sft::exchange_counts", mutates_args=())
def _exchange_counts(counts: Tensor, group: str) -> Tensor:
    """[ranks, experts a rank] pairs for each expert of each rank -> from each rank, for our own."""
    out = torch.empty_like(counts)
    dist.all_to_all_single(out, counts, group=named_group(group))
    return out


@torch.library.custom_op("sft::exchange_rows", mutates_args=())
def _exchange_rows(
    x: Tensor, sent: Tensor, received: Tensor, rows: int | None, group: str
) -> Tensor:
    """Send the first rows of `x` to the ranks in turn, [ranks] `sent` to each.

    Returns [rows, ..], those received first and zeros after them; without `rows`, as many as there
    are and one of padding, and they are counted as tokens for our experts.
    """
    process_group = named_group(group)
    send, receive = torch.stack([sent, received]).tolist()  # the one wait for the device
    if rows is None:
        rows = sum(receive) + 1
        counters.add("ep_tokens_received", sum(receive) - receive[process_group.rank()])
        counters.add("ep_tokens_computed", sum(receive))
    out = x.new_zeros(rows, *x.shape[1:])
    dist.all_to_all_single(
        out[: sum(receive)], x[: sum(send)].contiguous(), receive, send, group=process_group
    )
    return out


@_exchange_rows.register_fake
def _(x: Tensor, _sent: Tensor, _received: Tensor, rows: int | None, _group: str) -> Tensor:
    size: Any = torch.library.get_ctx().new_dynamic_size(min=1) if rows is None else rows
    return x.new_empty(size, *x.shape[1:])


def _keep_sizes(ctx: Any, inputs: tuple[Any, ...], **_: Tensor) -> None:
    x, sent, received, _, ctx.group = inputs
    ctx.rows = x.shape[0]
    ctx.save_for_backward(sent, received)


def _back_to_senders(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    sent, received = ctx.saved_tensors
    returned = torch.ops.sft.exchange_rows(gradient, received, sent, ctx.rows, ctx.group)
    return returned, None, None, None, None


_exchange_counts.register_fake(lambda counts, _group: torch.empty_like(counts))
_exchange_rows.register_autograd(_back_to_senders, setup_context=_keep_sizes)
