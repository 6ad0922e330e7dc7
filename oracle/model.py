"""A checkpoint as plain transformers loads it, and what one document gives."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from oracle.batches import IGNORED, Document
from oracle.errors import OracleError

BIAS = "e_score_correction_bias"
"""Of a router: added to scores where experts are picked; trained by no gradient."""
CLOSE = 1e-5
"""Scores that differ by a smaller share may fall either way by rounding."""


def load(path: Path, dtype: str) -> Any:
    """The checkpoint's model in float32, its weights rounded as the trainer rounds them."""
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            attn_implementation="eager",
            experts_implementation="eager",
            local_files_only=True,
            output_loading_info=True,
        )
    except (OSError, ValueError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise OracleError(f"{path} is not a checkpoint that transformers loads: {reason}") from None
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(kind):
            raise OracleError(f"{path}: {kind} {sorted(map(str, report[kind]))[0]}; write it again")
    for name, parameter in model.named_parameters():
        if name.endswith(BIAS):
            parameter.requires_grad_(False)
    return model.float().eval()  # no dropout


class FirstOfEquals(TorchFunctionMode):
    """`topk` that takes the first of exactly equal scores, as `sort` does when it is stable.

    torch leaves open which it returns, and a score of exactly zero is common in indexers. Where
    scores differ, the result is that of torch. `close` counts picks that rounding may turn: the
    best score left out is within `CLOSE` of the worst one picked. Those in `turned`, by their
    number, are turned.
    """

    def __init__(self, turned: Collection[int] = ()) -> None:
        super().__init__()
        self.close = 0
        self.turned = turned

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """What `func` returns."""
        kwargs = kwargs or {}
        if func not in (torch.topk, Tensor.topk):
            return func(*args, **kwargs)
        return self.topk(*args, **{key: x for key, x in kwargs.items() if key != "sorted"})

    def topk(self, x: Tensor, k: int, dim: int = -1, *_: Any) -> Any:
        """As `torch.topk`."""
        values, indices = x.sort(dim=dim, descending=True, stable=True)
        if 0 < k < x.shape[dim]:
            worst, best_out = values.select(dim, k - 1), values.select(dim, k)
            gap = (worst - best_out) / worst.abs().clamp(min=1e-30)
            places = ((gap > 0) & (gap < CLOSE)).nonzero().tolist()
            turned = [place for n, place in enumerate(places, self.close) if n in self.turned]
            self.close += len(places)
            if turned:
                order = with_turned(indices, k, dim, turned)
                values, indices = values.gather(dim, order), indices.gather(dim, order)
        picked = values.narrow(dim, 0, k), indices.narrow(dim, 0, k)
        return torch.return_types.topk(picked)


def with_turned(like: Tensor, k: int, dim: int, places: list[list[int]]) -> Tensor:
    """An order along `dim` in which the k-th and the one after it change places, in some rows."""
    order = torch.arange(like.shape[dim], device=like.device)
    rows = order.expand(like.movedim(dim, -1).shape).clone()
    for place in places:
        rows[tuple(place)][k - 1 : k + 1] = order[k - 1 : k + 1].flip(0)
    return rows.movedim(-1, dim)


def loss_sum(model: Any, document: Document, device: torch.device) -> Tensor:
    """The summed cross entropy of a document's targets, in float32."""
    tokens = torch.tensor([document.tokens], device=device)
    targets = torch.tensor(document.targets, device=device)
    logits = model(input_ids=tokens, use_cache=False).logits[0].float()
    return F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")


def experts_of(name: str) -> str:
    """The module of the experts that a correction bias belongs to."""
    return name.removesuffix(BIAS).removesuffix("gate.").removesuffix("experts.") + "experts"


def biases(model: nn.Module) -> dict[str, Tensor]:
    """Each correction bias, a buffer or a frozen parameter, by the name of its experts."""
    tensors = [*model.named_buffers(), *model.named_parameters()]
    return {experts_of(name): bias for name, bias in tensors if name.endswith(BIAS)}
