"""What the ranks of a run left about a step, lined up: by token, and by parameter."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sweep.errors import RequestError
from sweep.locate.tokens import Tokens, read

Array = Any
FORWARD, BACKWARD = ("in", "heads", "out"), ("grad_in", "grad_out")
INTEGERS = ("in_int", "out_int")  # tokens, positions, choices
AGAIN = "again"  # computed again in backward


@dataclass(frozen=True, order=True)
class Key:
    """What was recorded: the kind, the module or parameter, and which of its inputs or outputs."""

    kind: str
    name: str
    slot: str = ""
    call: int = 0


@dataclass
class Step:
    """One step of a run; arrays have a row a token or a row of the parameter.

    [n, directions + 1] projections with the norm last, for heads [n, heads].
    """

    tokens: Tokens
    modules: dict[Key, Array] = field(default_factory=dict)  # in the order of the first rank
    parameters: dict[Key, Array] = field(default_factory=dict)
    ranks: Array = None  # [tokens] the rank that computed each, -1 where none did
    broken: set[Key] = field(default_factory=set)  # not finite where tokens only fill rows up
    shards: dict[str, int] = field(default_factory=dict)  # ranks over which rows are split

    def of(self, kinds: Iterable[str]) -> list[Key]:
        """The modules' records of these kinds, in the order in which they were made."""
        return [key for key in self.modules if key.kind in kinds]


class Run:
    """A run's folder of taps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokens = read(folder)

    @property
    def steps(self) -> list[int]:
        """Those that it finished."""
        names = {path.stem.rpartition("-")[2] for path in self.folder.glob("inside-*-*.pt")}
        return sorted(int(name) for name in names)

    def step(self, number: int) -> Step:
        """One of them; raises RequestError for a file that is damaged."""
        step = Step(self.tokens[number])
        step.ranks = np.full(len(step.tokens.places), -1)
        for path in sorted(self.folder.glob(f"inside-*-{number}.pt"), key=_rank):
            _add(step, *_load(path))
        return step


def _rank(path: Path) -> int:
    return int(path.stem.split("-")[1])


def _load(path: Path) -> tuple[dict[str, Any], list[Array]]:
    import torch

    try:
        content = torch.load(path, weights_only=True)
        return json.loads(content["head"]), [tensor.numpy() for tensor in content["tensors"]]
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise RequestError(f"{path} is damaged ({error}); run the command again") from None


def _add(step: Step, head: dict[str, Any], arrays: list[Array]) -> None:
    """Put a rank's records where they belong."""
    step.shards |= head.get("shards", {})
    index: dict[int, Array] = {}
    for record, array in zip(head["records"], arrays, strict=True):
        kind, forward = record["kind"], record["forward"]
        key = Key(kind, record["name"], record["slot"], record["call"])
        if kind == "tokens":
            index[forward] = _numbers(step.tokens, head["rows"], array)
            step.ranks[index[forward][index[forward] >= 0]] = head["rank"]
        elif forward:
            scale = head.get("divisor", 1) if kind in BACKWARD else 1
            _scatter(step, key, index[forward], array / scale)
        else:
            finite = array if kind == "options" else np.where(np.isnan(array), np.inf, array)
            step.parameters.setdefault(key, finite)


def _numbers(tokens: Tokens, rows: list[str], places: Array) -> Array:
    """[n, 2] row and position -> [n] the tokens' numbers; -1 for padding and unknown rows."""
    numbers = np.full(len(places), -1)
    for row, name in enumerate(rows):
        mine = places[:, 0] == row
        if name in tokens.numbers:
            numbers[mine] = tokens.numbers[name][places[mine, 1]]
    return numbers


def _scatter(step: Step, key: Key, numbers: Array, values: Array) -> None:
    """NaN stays where no rank has a record; a NaN that was computed becomes infinite."""
    known = step.modules.get(key)
    if known is None:
        known = np.full((len(step.tokens.places), values.shape[1]), np.nan)
        step.modules[key] = known
    real = numbers >= 0
    if not np.isfinite(values[~real]).all():
        step.broken.add(key)
    known[numbers[real]] = np.where(np.isnan(values), np.inf, values)[real]
