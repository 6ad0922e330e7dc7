"""What was seen of a step on this rank, until it is written: `inside-<rank>-<step>.pt`."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor

from sweep_taps import batches
from sweep_taps.batches import Shown


class Recorder:
    """The records of the step under way.

    A record is a tensor with where it is from: `kind` (in, out, grad_in, grad_out, heads, or what
    of a parameter), `name` of the module or parameter, `slot` (which of its inputs or outputs),
    `forward` (which call of the model in this step), `call` (which call of the module in that).
    """

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.clear()

    def clear(self) -> None:
        """Begin another step."""
        self.records: list[dict[str, Any]] = []
        self.tensors: list[Tensor] = []
        self.rows: list[str] = []
        self.used: set[tuple[str, int]] = set()
        self.forward = 0

    def add(
        self, kind: str, name: str, x: Tensor, slot: str = "", call: tuple[int, int] = (0, 0)
    ) -> None:
        """Keep [n, ...] numbers."""
        forward, nth = call
        self.records.append(
            {"kind": kind, "name": name, "slot": slot, "forward": forward, "call": nth}
        )
        self.tensors.append(x)

    def begin(self, input_ids: Tensor, shown: list[Shown]) -> None:
        """A call of the model on [rows, seq] tokens, which are found among the rows shown."""
        self.forward += 1
        places = [self._place(row, shown) for row in input_ids.tolist()]
        seq = input_ids.shape[1]
        index = [[self._row(row), start + n] for row, start in places for n in range(seq)]
        self.add("tokens", "", torch.tensor(index), call=(self.forward, 0))

    def _place(self, tokens: list[int], shown: list[Shown]) -> tuple[str, int]:
        """The row that has these tokens, and where in it they begin; each place once."""
        found = [(one, at) for one in shown for at in _places(tokens, one.tokens)]
        fresh = [(one, at) for one, at in found if (one.row, one.start + at) not in self.used]
        if not found:
            return "", 0
        one, at = (fresh or found)[0]
        self.used.add((one.row, one.start + at))
        return one.row, one.start + at

    def _row(self, name: str) -> int:
        if name not in self.rows:
            self.rows.append(name)
        return self.rows.index(name)

    def write(self, step: int) -> None:
        """Leave the step's file, whole or not at all."""
        path = batches.folder() / f"inside-{batches.rank()}-{step}.pt"
        head = {"step": step, "rank": batches.rank(), "rows": self.rows, "records": self.records}
        partial = path.with_suffix(".partial")
        torch.save({"head": json.dumps(head | self.facts), "tensors": self.tensors}, partial)
        partial.replace(path)


def _places(tokens: list[int], row: list[int]) -> list[int]:
    """Where in a row a run of tokens begins."""
    if tokens == row:
        return [0]
    length = len(tokens)
    ends = range(len(row) - length + 1)
    return [at for at in ends if row[at] == tokens[0] and row[at : at + length] == tokens]
