"""A checkpoint that a trainer exported: its keys and shapes, and the loss that it gives."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from oracle import model as models
from oracle import ties
from oracle.batches import Document
from oracle.errors import OracleError

Shapes = list[tuple[str, tuple[int, ...]]]


def shapes(folder: Path) -> Shapes:
    """Each key of a checkpoint's files with its shape, as often as it is there; `OracleError`."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise OracleError(f"{folder} has no *.safetensors file; did the trainer export it?")
    return [shape for file in files for shape in _shapes_in(file)]


def _shapes_in(path: Path) -> Shapes:
    try:
        with safe_open(path, "pt") as file:
            keys = list(file.keys())
            return [(key, tuple(file.get_slice(key).get_shape())) for key in keys]
    except (OSError, SafetensorError) as error:
        raise OracleError(f"{path} cannot be read: {error}; export it again") from None


def other_keys(export: Path, checkpoint: Path) -> Iterator[str]:
    """Keys that the export has twice, lacks, or has in another shape than the checkpoint."""
    exported = shapes(export)
    for key, count in Counter(key for key, _ in exported).items():
        if count > 1:
            yield f"{key} is there {count} times"
    ours, theirs = dict(exported), dict(shapes(checkpoint))
    for key, shape in theirs.items():
        if key not in ours:
            yield f"{key} is missing"
        elif ours[key] != shape:
            yield f"{key} has the shape {list(ours[key])}, {list(shape)} in the checkpoint"


def load(export: Path, checkpoint: Path, dtype: str) -> Any:
    """The export's model, by plain transformers; `OracleError` where it is not whole.

    A key that the checkpoint does not have may be a copy of a tied weight, and of nothing else:
    transformers ties the two only where they are equal.
    """
    model = models.load(export, dtype)
    tied = {*model.all_tied_weights_keys, *model.all_tied_weights_keys.values()}
    more = {key for key, _ in shapes(export)} - {key for key, _ in shapes(checkpoint)} - tied
    if more:
        raise OracleError(f"{min(more)} is not in the checkpoint, nor a copy of a tied weight")
    return model


@torch.no_grad()
def loss(model: Any, docs: Sequence[Document], reported: float | None) -> dict[str, Any]:
    """The mean over the trained tokens of the documents, each by itself.

    Close picks fall as the `reported` loss says, see oracle/ties.py.
    """
    trained = sum(document.trained for document in docs)

    def run(turned: ties.Turned) -> ties.Run:
        total, close = 0.0, {}
        for place, document in enumerate(docs):
            picks = models.FirstOfEquals([number for at, number in turned if at == place])
            with picks:
                total += models.loss_sum(model, document, model.device).item()
            close[place] = picks.close
        return {"loss": total / max(trained, 1)}, close, (math.nan, {})

    known = None if reported is None else {"loss": reported}
    turned, (figures, close, _) = ties.settled(run, known)
    return figures | {"close_picks": sum(close.values()), "turned_picks": len(turned)}
