"""What keeps experts evenly loaded: an auxiliary loss, and a bias that is moved by their load.

The loss is taken over each document, as DeepSeek-V3's (arXiv:2412.19437, eq. 17 to 20) over a
sequence: the mean over its tokens of `experts x sum_i share_i x affinity_i`, where share_i is the
part of the document's picks that expert i has, and affinity_i the router's score of it, normalised
over the experts. Scores are the router's own: sigmoids, softmax, or V4's square root of softplus.
Shares have no gradient and are summed over the ranks that hold the document; affinities are each
token's own. So every layout has the same loss.

Biases are those of DeepSeek-V3 (arXiv:2408.15664): after each step, the bias of an expert with less
than the mean load of its layer goes up by a fixed rate, and down with more.

Padding is in neither, and a router that looks experts up by token has no choice to balance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from sft.config import Config
from sft.context.exchange import named_group
from sft.context.sequence import active, slice_of
from sft.errors import ConfigError
from sft.moe import biases
from sft.ranks import Ranks
from sft.report import counters

LOSS = "aux_loss"
Score = Callable[[Tensor], Tensor]
SCORES: dict[str, Score] = {
    "DeepseekV4TopKRouter": lambda logits: F.softplus(logits).sqrt(),
    "Glm4MoeTopkRouter": torch.sigmoid,
    "GlmMoeDsaTopkRouter": torch.sigmoid,
    "GptOssTopKRouter": lambda logits: logits.softmax(-1),
    "LagunaTopKRouter": torch.sigmoid,
    "MiniMaxM2TopKRouter": torch.sigmoid,
    "NemotronHTopkRouter": torch.sigmoid,
    "Qwen3MoeTopKRouter": lambda logits: logits.softmax(-1),
    "Qwen3_5MoeTopKRouter": lambda logits: logits.softmax(-1),
    "Qwen4ExpTextTopKRouter": lambda logits: logits.softmax(-1),
}
"""How each router scores experts, by its class."""


class Balance:
    """The routers of a model, with what is asked for attached to them."""

    def __init__(self, model: nn.Module, config: Config, ranks: Ranks) -> None:
        self.ranks, self.rate = ranks, config.optim.router_bias_rate
        self.has_loss = bool(config.optim.aux_loss_coef)
        self.tokens = torch.ones((), device=ranks.device)
        self.biases = biases.of(model) if self.rate else {}
        self.loads: dict[str, Tensor] = {}
        if self.has_loss:
            # FSDP averages gradients over the ranks
            scale = config.optim.aux_loss_coef * ranks.world_size
            for router in choosing(model):
                router.register_forward_hook(AuxiliaryLoss(score_of(router), self.tokens, scale))
        for name in self.biases:
            model.get_submodule(name).register_forward_pre_hook(self.counting(name))

    def counting(self, name: str) -> Any:
        """A hook on experts that counts the tokens of each."""

        def count(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            hidden_states, chosen, *rest = inputs
            sequence = active()
            if sequence is None:
                return inputs
            real = sequence.local(sequence.real).flatten()
            return torch.ops.sft.count_load(hidden_states, chosen, real, name), chosen, *rest

        # in float32 also where the model is not: in bfloat16 a count would end at 256
        self.loads[name] = torch.zeros(self.biases[name].shape, device=self.ranks.device)
        _loads[name] = self.loads[name]
        return count

    def start(self, padding: Tensor) -> None:
        """Before a step: the loss is a mean over the tokens of the global batch.

        padding [rows, seq] of this rank's rows.
        """
        if self.has_loss:
            real = ~slice_of(padding, self.ranks.cp_group)
            self.tokens.copy_(self.ranks.sum(real.sum().float()).clamp(min=1))

    @torch.no_grad()
    def step(self) -> None:
        """Move each layer's biases against the load of this step's global batch."""
        for name, bias in self.biases.items():
            load = self.ranks.sum(self.loads[name])
            bias.add_(torch.sign(load.mean() - load), alpha=self.rate)
            load.zero_()


class AuxiliaryLoss:
    """A router's hook: its share of the loss goes into the gradient and into the step's record."""

    def __init__(self, score: Score, tokens: Tensor, scale: float) -> None:
        self.score, self.tokens, self.scale = score, tokens, scale

    def __call__(self, _module: nn.Module, _inputs: Any, out: Any) -> Any:
        sequence = active()
        if sequence is None:
            return None
        logits, weights, chosen = out
        documents, experts = sequence.document_ids, logits.shape[-1]
        mine, real = sequence.local(documents), sequence.local(sequence.real)
        picked = F.one_hot(chosen, experts).flatten(0, -3).sum(-2).float()
        # a row has no more documents than tokens
        shares = picked.new_zeros(*documents.shape, experts)
        shares = shares.scatter_add(1, wide(mine, experts), picked.view(*mine.shape, experts))
        shares = torch.ops.sft.sum_over(shares, sequence.group_name)
        shares = shares / tokens_of(documents).unsqueeze(-1) / chosen.shape[-1]
        scores = self.score(logits.flatten(0, -2).float()).view(*mine.shape, experts)
        affinity = scores / scores.sum(-1, keepdim=True) * real.unsqueeze(-1)
        loss = experts * (shares.gather(1, wide(mine, experts)) * affinity).sum() / self.tokens
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


def choosing(model: nn.Module) -> list[nn.Module]:
    """The routers that choose; V4's first ones look a token's experts up in a table."""
    return [router for router in routers(model) if not hasattr(router, "tid2eid")]


def score_of(router: nn.Module) -> Score:
    """How a router scores experts; raises `ConfigError` where that is not known."""
    name = type(router).__name__
    if name not in SCORES:
        raise ConfigError(
            f"optim.aux_loss_coef: how {name} scores experts is not known; "
            "add it to SCORES in sft/moe/balance.py, or use 0"
        )
    return SCORES[name]


_loads: dict[str, Tensor] = {}


def count_load(chosen: Tensor, real: Tensor, name: str) -> None:
    """Count the real tokens of each expert, where they are computed for the first time."""
    if not counters.recomputing():
        ones = real.to(_loads[name]).unsqueeze(1).expand_as(chosen)
        _loads[name].scatter_add_(0, chosen.flatten(), ones.flatten())


def count_loss(loss: Tensor) -> None:
    """Record a layer's loss, where it is computed for the first time."""
    if not counters.recomputing():
        counters.add(LOSS, loss.detach())


@torch.library.custom_op("sft::count_load", mutates_args=())
def _count_load(x: Tensor, chosen: Tensor, real: Tensor, name: str) -> Tensor:
    count_load(chosen, real, name)
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


counters.passes_on(_count_load, inputs=4)
_attach_loss.register_fake(lambda x, _loss, _scale: torch.empty_like(x))
_attach_loss.register_autograd(
    lambda ctx, gradient: (gradient, torch.full_like(ctx.like, ctx.scale), None),
    setup_context=_keep_scale,
)
_sum_over.register_fake(lambda x, _group: torch.empty_like(x))
