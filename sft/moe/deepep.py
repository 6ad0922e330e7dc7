"""Expert parallelism through DeepEP's kernels, with its `Buffer` (github.com/deepseek-ai/DeepEP).

A token goes once to each rank that has one of its experts, in bfloat16, and the ranks' weighted
sums are added up on the way back. The backward of a dispatch is a combine, and the other way round.
Its kernels are not operators that torch.compile knows: each layer's graph breaks there.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from transformers.distributed.expert_parallel import EPImplementation, EPImplementationInterface

from sft.report import counters

NAME = "deepep"


def register() -> None:
    """Make the implementation known to transformers' `DistributedConfig`."""
    EPImplementationInterface.register(NAME, DeepEP)


class DeepEP(EPImplementation):
    """Tokens travel by DeepEP; the experts here see those that have some of them among theirs."""

    @torch.compiler.disable
    def __call__(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """[tokens, hidden], global expert ids and weights [tokens, k] -> [tokens, hidden]."""
        buffer = shared_buffer(self.ep_mesh.get_group(), hidden_states.shape[1] * 2)
        experts = self.num_local_experts * self.ep_mesh.size()
        x, ids, weights, handle = Dispatch.apply(
            hidden_states, top_k_weights.float(), top_k_index, experts, buffer
        )
        counters.add("ep_tokens_computed", (ids >= 0).sum())
        ids = torch.where(ids < 0, self.num_local_experts, ids)  # experts elsewhere are skipped
        # one row more, of no expert: a rank's experts never compute nothing
        ids = F.pad(ids, (0, 0, 0, 1), value=self.num_local_experts)
        x, weights = F.pad(x, (0, 0, 0, 1)), F.pad(weights, (0, 0, 0, 1))
        out = self.experts_forward(x, ids, weights.to(x.dtype))[:-1]
        return Combine.apply(out, handle, buffer)


@functools.cache
def shared_buffer(group: dist.ProcessGroup, bytes_a_token: int) -> Any:
    """The communication buffer of a group, of the size that DeepEP advises."""
    from deep_ep import Buffer

    ranks = group.size()
    configs = Buffer.get_dispatch_config(ranks), Buffer.get_combine_config(ranks)
    nvlink = max(c.get_nvl_buffer_size_hint(bytes_a_token, ranks) for c in configs)
    rdma = max(c.get_rdma_buffer_size_hint(bytes_a_token, ranks) for c in configs)
    return Buffer(group, nvlink, rdma)


class Dispatch(torch.autograd.Function):
    """Tokens to the ranks of their experts; ids there are local, -1 for an expert elsewhere."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weights: Tensor, ids: Tensor, experts: int, buffer: Any
    ) -> tuple[Tensor, Tensor, Tensor, Any]:
        per_rank, per_rdma_rank, per_expert, in_rank, _ = buffer.get_dispatch_layout(ids, experts)
        received, local_ids, local_weights, _, handle, _ = buffer.dispatch(
            x,
            topk_idx=ids,
            topk_weights=weights,
            num_tokens_per_rank=per_rank,
            num_tokens_per_rdma_rank=per_rdma_rank,
            is_token_in_rank=in_rank,
            num_tokens_per_expert=per_expert,
        )
        counters.add("ep_tokens_received", len(received) - in_rank[:, buffer.rank].sum())
        ctx.handle, ctx.buffer = handle, buffer
        ctx.mark_non_differentiable(local_ids)
        return received, local_ids, local_weights, handle

    @staticmethod
    def backward(ctx: Any, x: Tensor, _ids: None, weights: Tensor, _handle: None) -> Any:
        x, weights, _ = ctx.buffer.combine(x.contiguous(), ctx.handle, topk_weights=weights)
        return x, weights, None, None, None


class Combine(torch.autograd.Function):
    """Each token's sum over the ranks that it was sent to, back where it came from."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, handle: Any, buffer: Any) -> Tensor:
        ctx.handle, ctx.buffer = handle, buffer
        return buffer.combine(x.contiguous(), handle)[0]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.buffer.dispatch(gradient.contiguous(), handle=ctx.handle)[0], None, None
