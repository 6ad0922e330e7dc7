"""The gated delta rule by flash-linear-attention's kernels (package fla-core), on a GPU.

They take documents laid end to end, with the places where each begins, and are not put into
compiled graphs: the package itself keeps its operators out, so that each compiled layer has a
break here.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sft.context.sequence import current
from sft.report import counters

COUNTER = "fla_calls"


@torch.compiler.disable(reason="flash-linear-attention is not put into graphs")
def gated_delta_rule(
    query: Tensor, key: Tensor, value: Tensor, log_decay: Tensor, beta: Tensor, l2norm: bool
) -> Tensor:
    """The rule over whole rows, anew in each document; few key heads serve their own values'.

    query and key [batch, seq, key heads, dim], value [batch, seq, heads, dim], log_decay and beta
    [batch, seq, heads]; returns value's shape. `l2norm`: query and key are made of unit length.
    """
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    counters.add(COUNTER, 1)
    rows = (x.flatten(0, 1).unsqueeze(0) for x in (query, key, value, log_decay.float(), beta))
    out, _state = chunk_gated_delta_rule(
        *rows, use_qk_l2norm_in_kernel=l2norm, cu_seqlens=current().cu_seqlens
    )
    return out.view_as(value)
