"""What keeps experts evenly loaded: an auxiliary loss, and a bias that is moved by their load.

The loss is taken over each document, as DeepSeek-V3's (arXiv:2412.19437, eq. 17) over a sequence:
the mean over its tokens of `experts x sum_i share_i x probability_i`, where share_i is the part of
the document's picks that expert i has. Shares have no gradient and are summed over the ranks that
hold the document; probabilities are each token's own. So every layout has the same loss.

Biases are those of DeepSeek-V3 (arXiv:2408.15664): after each step, the bias of an expert with less
than the mean load of its layer goes up by a fixed rate, and down with more.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from sft.config import Config
from sft.context.exchange import named_group
from sft.context.sequence import active
from sft.ranks import Ranks
from sft.report import counters
from sft.report.shards import local, local_part

LOSS = "aux_loss"
BIAS = "e_score_correction_bias"


class Balance:
    """The routers of a model, with what is asked for attached to them."""

    def __init__(self, model: nn.Module, config: Config, ranks: Ranks) -> None:
        self.ranks, self.rate = ranks, config.optim.router_bias_rate
        self.biases = biases(model) if self.rate else {}
        self.loads: dict[str, Tensor] = {}
        if config.optim.aux_loss_coef:
            hook = AuxiliaryLoss(config, ranks)
            for router in routers(model):
                router.register_forward_hook(hook)
        for name in self.biases:
            model.get_submodule(name).register_forward_pre_hook(self.counting(name))

    def counting(self, name: str) -> Any:
        """A hook on experts that counts the tokens of each."""

        def count(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            hidden_states, chosen, *rest = inputs
            return torch.ops.sft.count_load(hidden_states, chosen, name), chosen, *rest

        # in float32 also where a bias is not: in bfloat16 a count would end at 256
        self.loads[name] = torch.zeros(self.biases[name].shape, device=self.ranks.device)
        _loads[name] = self.loads[name]
        return count

    @torch.no_grad()
    def step(self) -> None:
        """Move each layer's biases against the load of this step's global batch."""
        for name, bias in self.biases.items():
            load = self.ranks.sum(self.loads[name])
            local(bias).add_(local_part(torch.sign(load.mean() - load), bias), alpha=self.rate)
            load.zero_()


class AuxiliaryLoss:
    """A router's hook: its share of the loss goes into the gradient and into the step's record."""

    def __init__(self, config: Config, ranks: Ranks) -> None:
        self.tokens = config.data.global_batch * config.data.seq_len
        # FSDP averages gradients over the ranks
        self.scale = config.optim.aux_loss_coef * ranks.world_size

    def __call__(self, _module: nn.Module, _inputs: Any, out: Any) -> Any:
        sequence = active()
        if sequence is None:
            return None
        logits, weights, chosen = out
        documents, experts = sequence.document_ids, logits.shape[-1]
        mine = sequence.local(documents)
        picked = F.one_hot(chosen, experts).flatten(0, -3).sum(-2).float()
        # a row has no more documents than tokens
        shares = picked.new_zeros(*documents.shape, experts)
        shares = shares.scatter_add(1, wide(mine, experts), picked.view(*mine.shape, experts))
        shares = torch.ops.sft.sum_over(shares, sequence.group_name)
        shares = shares / tokens_of(documents).unsqueeze(-1) / chosen.shape[-1]
        probability = logits.flatten(0, -2).float().softmax(-1).view(*mine.shape, experts)
        loss = experts * (shares.gather(1, wide(mine, experts)) * probability).sum() / self.tokens
        return logits, torch.ops.sft.attach_loss(weights, loss, self.scale), chosen


def tokens_of(documents: Tensor) -> Tensor:
    """[batch, seq] document ids -> [batch, seq] tokens of each document, at least one."""
    counts = torch.zeros_like(documents, dtype=torch.float32)
    return counts.scatter_add(1, documents, torch.ones_like(counts)).clamp(min=1)


def wide(index: Tensor, size: int) -> Tensor:
    """[batch, seq] -> [batch, seq, size], to gather and scatter vectors by."""
    return index.unsqueeze(-1).expand(-1, -1, size)


def routers(model: nn.Module) -> list[nn.Module]:
    """The modules that return logits, weights and experts of each token."""
    return [module for module in model.modules() if "router" in type(module).__name__.lower()]


def biases(model: nn.Module) -> dict[str, Tensor]:
    """The correction bias of each layer by its experts' name.

    A buffer, whole on every rank, or a frozen parameter, which FSDP shards (laguna's).
    """
    tensors = (*model.named_buffers(), *model.named_parameters())
    found = {name: bias for name, bias in tensors if name.endswith(BIAS)}
    return {
        name.removesuffix(BIAS).removesuffix("gate.") + "experts": bias
        for name, bias in found.items()
    }


_loads: dict[str, Tensor] = {}


def count_load(chosen: Tensor, name: str) -> None:
    """Count the tokens of each expert, where they are computed for the first time."""
    if not counters.recomputing():
        ones = torch.ones_like(chosen.flatten(), dtype=_loads[name].dtype)
        _loads[name].scatter_add_(0, chosen.flatten(), ones)


def count_loss(loss: Tensor) -> None:
    """Record a layer's loss, where it is computed for the first time."""
    if not counters.recomputing():
        counters.add(LOSS, loss.detach())


@torch.library.custom_op("sft::count_load", mutates_args=())
def _count_load(x: Tensor, chosen: Tensor, name: str) -> Tensor:
    count_load(chosen, name)
    return x.clone()


@torch.library.custom_op("sft::attach_loss", mutates_args=())
def _attach_loss(x: Tensor, loss: Tensor, scale: float) -> Tensor:
    """A copy of `x`, in whose backward `loss` gets its gradient, `scale`."""
    count_loss(loss)
    return x.clone()


@torch.library.custom_op("sft::sum_over", mutates_args=())
def _sum_over(x: Tensor, group: str) -> Tensor:
    """The sum over the ranks that share a sequence; no gradient."""
    out = x.clone()
    if group:
        dist.all_reduce(out, group=named_group(group))
    return out


def _keep_scale(ctx: Any, inputs: tuple[Any, ...], **_: Tensor) -> None:
    _, loss, ctx.scale = inputs
    ctx.like = loss.new_empty(())


counters.passes_on(_count_load, inputs=3)
_attach_loss.register_fake(lambda x, _loss, _scale: torch.empty_like(x))
_attach_loss.register_autograd(
    lambda ctx, gradient: (gradient, torch.full_like(ctx.like, ctx.scale), None),
    setup_context=_keep_scale,
)
_sum_over.register_fake(lambda x, _group: torch.empty_like(x))
