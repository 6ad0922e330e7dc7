"""A tiny trainer that nobody else knows, whose only tie to the sweep is the import of the taps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from sweep_taps import batches, watching

WORDS, WIDTH, SEQ = 23, 8, 6


class Block(nn.Module):
    """A layer with a residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(self.norm(x)).tanh()


class Model(nn.Module):
    """Two layers between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.recomputes = False

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recomputes else layer(x)
        return self.head(x)


@dataclass
class Training:
    """What a run is: the faults of a test are changes of it."""

    steps: int = 2
    recomputes: bool = False
    lr: float = 1e-2
    loss_scale: float = 1.0
    clip: float = 0.0
    shows: bool = True  # it calls `batch`
    spoil: Callable[[Model], object] = lambda _: None  # the model, before the first step
    change_rows: Callable[[Tensor], Tensor] = lambda rows: rows
    before_step: Callable[[Model], object] = lambda _: None


def train(training: Training, folder: Path, patch: pytest.MonkeyPatch, **env: str) -> Path:
    """Train with taps on; returns their folder."""
    for key, value in {"TAPS": str(folder), "TAPS_INSIDE": "1", **env}.items():
        patch.setenv(f"SWEEP_{key}", value)
    watching.stop()
    watching.start()
    try:
        _train(training)
    finally:
        watching.stop()
        for key in env:
            patch.delenv(f"SWEEP_{key}")
    return folder


def _train(training: Training) -> None:
    torch.manual_seed(0)
    model = Model()
    model.recomputes = training.recomputes
    training.spoil(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.lr)
    for step in range(1, training.steps + 1):
        generator = torch.Generator().manual_seed(step)
        rows = training.change_rows(torch.randint(WORDS, (3, SEQ), generator=generator))
        labels = torch.cat([rows[:, 1:], torch.full((len(rows), 1), -100)], 1)
        if training.shows:
            batches.batch(step, rows, labels, torch.arange(SEQ).expand(len(rows), SEQ))
        logits = model(rows)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        (loss * training.loss_scale).backward()
        training.before_step(model)
        if training.clip:
            nn.utils.clip_grad_norm_(model.parameters(), training.clip)
        optimizer.step()
        optimizer.zero_grad()
