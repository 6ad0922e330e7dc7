"""A checkpoint as plain transformers loads it, and what one document gives."""

from __future__ import annotations

from collections.abc import Callable
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
    best score left out is within a millionth of the worst one picked.
    """

    def __init__(self) -> None:
        super().__init__()
        self.close = 0

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
            last, next_one = values.select(dim, k - 1), values.select(dim, k)
            gap = (last - next_one) / last.abs().clamp(min=1e-30)
            self.close += int(((gap > 0) & (gap < 1e-6)).sum())
        picked = values.narrow(dim, 0, k), indices.narrow(dim, 0, k)
        return torch.return_types.topk(picked)


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
