"""The rows that a trainer trains on, as JSON lines.

So a step is added to the end without reading what is there, a killed run leaves every step that it
finished, and a person can read and write them.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from torch import distributed as dist

VARIABLE = "SWEEP_TAPS"
RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
_rows: dict[int, tuple[int, int]] = {}  # by group: the step, and how many rows it has so far


@dataclass(frozen=True)
class Shown:
    """A row, or a slice of one, as it was shown: its name, where the slice starts, its tokens."""

    row: str
    start: int
    tokens: list[int]


shown: dict[int, list[Shown]] = {}  # this rank's rows of the newest step


def is_on() -> bool:
    """Whether someone asked for the batches."""
    return bool(os.environ.get(VARIABLE))


def batch(
    step: int,
    input_ids: Tensor,
    labels: Tensor,
    position_ids: Tensor | None = None,
    *,
    document_lengths: list[list[int]] | None = None,
    labels_of: str = "next_token",
    part: tuple[int, int] | None = None,
    padding: Tensor | None = None,
) -> None:
    """Write this rank's rows [rows, seq] of a step; call it once for each micro-batch.

    Documents are cut where `position_ids` [rows, seq] restarts at 0, or by `document_lengths`. A
    label is that of the next token (`labels_of="next_token"`), or of the token itself ("token"),
    and negative where nothing is trained. `padding` [rows, seq] is true where a token is filling.
    Ranks that hold slices of the same rows say so by `part`: a number that all of them give, and
    where in the row their slice starts.
    """
    if not is_on():
        return
    group, start = (rank(), 0) if part is None else part
    columns = {"input_ids": input_ids, "labels": labels, "position_ids": position_ids}
    tokens = {name: x.tolist() for name, x in columns.items() if x is not None}
    if step not in shown:
        shown.clear()
    lines = []
    for number in range(len(input_ids)):
        line: dict[str, Any] = {"step": step, "row": _next_row(step, group), "start": start}
        line |= {name: rows[number] for name, rows in tokens.items()}
        if document_lengths is not None:
            line["document_lengths"] = document_lengths[number]
        if padding is not None:
            line["padding"] = int(padding[number].sum())
        shown.setdefault(step, []).append(Shown(line["row"], start, line["input_ids"]))
        lines.append(json.dumps(line | {"labels_of": labels_of}) + "\n")
    _append("".join(lines))


def rank() -> int:
    """This process among the trainer's."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return next((int(os.environ[name]) for name in RANKS if name in os.environ), 0)


def folder() -> Path:
    """Where the files go."""
    place = Path(os.environ[VARIABLE])
    place.mkdir(parents=True, exist_ok=True)
    return place


def _next_row(step: int, group: int) -> str:
    """A name that a row has on every rank that holds a slice of it."""
    last_step, count = _rows.get(group, (step, 0))
    number = count if last_step == step else 0
    _rows[group] = step, number + 1
    return f"{group}.{number}"


def _append(text: str) -> None:
    with (folder() / f"batches-{rank()}.jsonl").open("a", encoding="utf-8") as file:
        file.write(text)
