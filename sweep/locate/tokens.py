"""The tokens of a step, in one order whatever the layout: by document, then by place in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oracle import batches
from oracle.batches import Document
from oracle.errors import OracleError
from sweep.errors import RequestError


@dataclass(frozen=True)
class Token:
    """Where a token lies: its row as the trainer named it, its place there, and its document."""

    row: str
    position: int
    document: int

    def __str__(self) -> str:
        return f"row {self.row}, position {self.position} (document {self.document} of the row)"


@dataclass
class Tokens:
    """The documents of one step of a run."""

    documents: dict[tuple[str, int], Document] = field(default_factory=dict)
    """By digest, and its number where the step has one several times."""
    places: list[Token] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)
    """[seq] of each row: the number of each token in `places`, -1 for padding."""

    @classmethod
    def of(cls, rows: Mapping[str, Mapping[str, Any]]) -> Tokens:
        """From a step's rows by name."""
        made, seen = cls(), Counter[str]()
        found: list[tuple[tuple[str, int], Document, int, int]] = []
        for name, row in rows.items():
            begin = 0
            for number, document in enumerate(batches.documents(dict(row), name)):
                key = (document.digest, seen[document.digest])
                seen[document.digest] += 1
                found.append((key, document, begin, number))
                begin += len(document.tokens)
            made.numbers[name] = np.full(len(row["input_ids"]), -1)
        for key, document, begin, number in sorted(found, key=lambda item: item[0]):
            first, length = len(made.places), len(document.tokens)
            made.documents[key] = document
            made.numbers[document.row][begin : begin + length] = np.arange(first, first + length)
            made.places += [Token(document.row, begin + n, number) for n in range(length)]
        return made


def read(folder: Path) -> dict[int, Tokens]:
    """Of each step that a run left in its folder of taps; raises RequestError."""
    try:
        rows = batches.rows([folder])
        steps: dict[int, dict[str, Any]] = {}
        for (step, name), row in rows.items():
            steps.setdefault(step, {})[name] = row
        return {step: Tokens.of(named) for step, named in steps.items()}
    except OracleError as error:
        raise RequestError(f"the batches cannot be lined up: {error}") from None


def first_unlike(ours: Tokens, theirs: Tokens) -> tuple[Document, str] | None:
    """A document that the other run does not train on in this step, and how its nearest differs."""
    missing = [d for key, d in ours.documents.items() if key not in theirs.documents]
    if not missing:
        return None
    document = min(missing, key=lambda one: one.row)
    others = [d for key, d in theirs.documents.items() if key not in ours.documents]
    return document, _difference(document, others)


def _difference(document: Document, others: Sequence[Document]) -> str:
    for other in others:
        if other.tokens == document.tokens:
            place = _place(document.targets, other.targets)
            ours, theirs = document.targets[place], other.targets[place]
            return f"its token {place} has target {ours}, in the reference {theirs}"
    near = max(others, key=lambda one: _place(document.tokens, one.tokens), default=None)
    if near is None or not (place := _place(document.tokens, near.tokens)):
        return "the reference trains on no such document in this step"
    return f"the reference has other tokens from token {place} on"


def _place(ours: Sequence[int], theirs: Sequence[int]) -> int:
    pairs = enumerate(zip(ours, theirs, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
