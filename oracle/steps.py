"""The figures of each step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sweep_taps
from oracle import balance, optimizer, shown, ties
from oracle import model as models
from oracle.batches import Document, Steps
from oracle.errors import OracleError
from oracle.settings import Settings

Figures = dict[str, Any]


def compute(
    checkpoint: Path,
    steps: Steps,
    settings: Settings,
    device: str,
    reported: ties.Reported | None = None,
) -> Iterator[Figures]:
    """The figures of each step, the model trained in between; raises `OracleError`.

    `reported` figures of the trainer say which way picks fall that rounding may turn.
    """
    told = ties.trusted(reported, settings.dtype) or {}
    model = models.load(checkpoint, settings.dtype).to(device)
    adamw = optimizer.AdamW(settings)
    uses_routers = bool(settings.aux_loss_coef or settings.router_bias_rate)
    routers = balance.Routers(model) if uses_routers else None
    check_vocabulary(steps, model.config.vocab_size)
    sweep_taps.watch(model)
    for number, docs in steps.items():
        shown.rows(number, docs)
        lr = optimizer.learning_rate(number, settings)

        def run(turned: ties.Turned, docs: Sequence[Document] = docs) -> ties.Run:
            figures, close = gradient(model, docs, settings, routers, turned)
            return figures, close, optimizer.norms(model, settings)

        turned, (figures, close, (norm, groups)) = ties.settled(run, told.get(number))
        figures |= {"close_picks": sum(close.values()), "turned_picks": len(turned)}
        factor = optimizer.clip_factor(norm, settings)
        before = shown.weights(model)
        adamw.step(dict(model.named_parameters()), lr, factor)
        shown.step(model, adamw, lr, factor, before)
        if routers and settings.router_bias_rate:
            balance.step_biases(model, routers, settings.router_bias_rate)
        norms = {"grad_norm": norm, "grad_norm_groups": groups, "clip_coefficient": factor}
        yield {"step": number, "lr": lr, **norms, **figures}


def check_vocabulary(steps: Steps, size: int) -> None:
    """Raise `OracleError` for a token that the model does not have."""
    for number, docs in steps.items():
        for document in docs:
            outside = [t for t in (*document.tokens, *document.targets) if t >= size]
            if outside:
                raise OracleError(
                    f"step {number}: token {outside[0]} is outside of the vocabulary of {size}; "
                    "are these batches of another checkpoint?"
                )


def gradient(
    model: Any,
    docs: Sequence[Document],
    settings: Settings,
    routers: balance.Routers | None,
    turned: ties.Turned = (),
) -> tuple[Figures, ties.Close]:
    """Leave the step's gradient in the model; return its losses, and how many picks are close.

    The loss is the mean over all trained tokens of the global batch, each document by itself. The
    auxiliary loss is the mean over all tokens that are not padding.
    """
    trained = sum(document.trained for document in docs)
    tokens = sum(len(document.tokens) for document in docs)
    total, auxiliary = 0.0, 0.0
    close: ties.Close = {}
    model.zero_grad()
    if routers:
        routers.forget()
    # the same order whatever the layout, so that rounding is the same
    for place, document in enumerate(sorted(docs, key=lambda document: document.digest)):
        if not document.trained and routers is None:
            continue
        picks = models.FirstOfEquals([number for at, number in turned if at == place])
        with picks:
            loss = models.loss_sum(model, document, model.device) / max(trained, 1)
        close[place] = picks.close
        total += loss.item()
        if routers and (balanced := routers.take_loss()) is not None:
            share = balanced * (len(document.tokens) / tokens)
            auxiliary += share.item()
            loss = loss + settings.aux_loss_coef * share
        loss.backward()
    figures: Figures = {"loss": total, "tokens": trained}
    has_balance = settings.aux_loss_coef and routers
    return figures | ({"aux_loss": auxiliary} if has_balance else {}), close
