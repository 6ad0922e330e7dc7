"""The batches that a trainer says it trained on, as documents by step.

A file has a JSON object per line: a row of tokens, or a slice of one. docs/oracle.md lists the
keys. Slices of a row are joined, rows are cut into documents, and padding is dropped.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from oracle.errors import OracleError

Line = dict[str, Any]
REQUIRED = ("step", "input_ids", "labels")
TOKENS = ("input_ids", "labels", "position_ids")
LABELS_OF = ("next_token", "token")
IGNORED = -100


@dataclass(frozen=True)
class Document:
    """Tokens that attend to each other, with the token that each has to predict."""

    tokens: tuple[int, ...]
    targets: tuple[int, ...]
    """The next token where it is trained on, else -100; the last one is never trained."""
    row: str = ""

    @property
    def trained(self) -> int:
        """How many tokens the loss is taken over."""
        return sum(target != IGNORED for target in self.targets)

    @property
    def digest(self) -> str:
        """Of tokens and targets."""
        return hashlib.sha256(repr((self.tokens, self.targets)).encode()).hexdigest()


Steps = dict[int, list[Document]]


def read(paths: Iterable[Path]) -> Steps:
    """The documents of each step, in the files' order; raises `OracleError`."""
    steps: defaultdict[int, list[Document]] = defaultdict(list)
    for (step, row), line in rows(paths).items():
        steps[step] += documents(line, row)
    _check_steps(steps)
    return dict(steps)


def rows(paths: Iterable[Path]) -> dict[tuple[int, str], Line]:
    """Each row by its step and name, from its slices, step by step; raises `OracleError`."""
    parts: defaultdict[tuple[int, str], list[Line]] = defaultdict(list)
    for path in files(paths):
        for number, line in enumerate(_lines(path), 1):
            where = f"{path}:{number}"
            checked(line, where)
            row = str(line.get("row", where))
            parts[line["step"], row].append(line)
    return {
        (step, row): joined(slices, f"step {step}, row {row}")
        for (step, row), slices in sorted(parts.items(), key=lambda item: item[0][0])
    }


def files(paths: Iterable[Path]) -> list[Path]:
    """The files, and those in the folders; raises `OracleError` where there is none."""
    result: list[Path] = []
    for path in paths:
        inside = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise OracleError(f"{path} has no *.jsonl file; did the trainer call sweep_taps.batch?")
        result += inside
    return result


def digest(steps: Steps) -> str:
    """The same for the same documents in each step, in whatever order, rows and ranks."""
    text = json.dumps({step: sorted(d.digest for d in docs) for step, docs in steps.items()})
    return hashlib.sha256(text.encode()).hexdigest()


def _lines(path: Path) -> Iterator[Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OracleError(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        try:
            yield json.loads(line)
        except ValueError:
            raise OracleError(f"{path}:{number} is not JSON; was the trainer killed?") from None


def checked(line: Any, where: str) -> None:
    """Raise `OracleError` for a line that is not a row of a batch."""
    missing = [k for k in REQUIRED if k not in line] if isinstance(line, dict) else REQUIRED
    if missing:
        raise OracleError(f"{where} lacks {', '.join(missing)}; see docs/oracle.md for the keys")
    lengths = {key: len(line[key]) for key in TOKENS if _is_integers(line.get(key))}
    if wrong := [key for key in TOKENS if key in line and key not in lengths]:
        raise OracleError(f"{where}: {wrong[0]} is not a list of integers")
    if len(set(lengths.values())) != 1:
        raise OracleError(f"{where}: lengths differ: {lengths}")
    if not isinstance(line["step"], int) or line["step"] < 1:
        raise OracleError(f"{where}: step={line['step']!r} must be an integer from 1 on")
    if line.get("labels_of", LABELS_OF[0]) not in LABELS_OF:
        raise OracleError(f"{where}: labels_of must be one of {', '.join(LABELS_OF)}")
    if "position_ids" not in line and "document_lengths" not in line:
        raise OracleError(f"{where} needs position_ids or document_lengths, to cut documents by")


def _is_integers(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def joined(slices: Sequence[Line], where: str) -> Line:
    """One row from its slices, by their start; raises `OracleError` if they do not meet."""
    whole: Line = {**slices[0], "padding": 0, **{key: [] for key in TOKENS if key in slices[0]}}
    for part in sorted(slices, key=lambda piece: piece.get("start", 0)):
        if part.get("start", 0) != len(whole["input_ids"]):
            raise OracleError(
                f"{where}: a slice starts at {part.get('start', 0)}, but {len(whole['input_ids'])}"
                " tokens come before it; rows of several ranks need different names"
            )
        for key in TOKENS:
            if (key in part) != (key in whole):
                raise OracleError(f"{where}: {key} is in some slices only")
            whole.get(key, []).extend(part.get(key, []))
        whole["padding"] += part.get("padding", 0)
    return whole


def documents(row: Line, name: str) -> Iterator[Document]:
    """The documents of a row, without its padding; raises `OracleError`."""
    tokens, targets = row["input_ids"], row["labels"]
    if row.get("labels_of") == "token":
        targets = [*targets[1:], IGNORED]
    end = len(tokens) - row["padding"]
    if any(target >= 0 for target in targets[end:]):
        raise OracleError(f"step {row['step']}, row {name}: a token of the padding is trained on")
    for first, last in pairwise(_bounds(row, end, name)):
        cut = tuple(target if target >= 0 else IGNORED for target in targets[first:last])
        yield Document(tuple(tokens[first:last]), cut, name)


def _bounds(row: Line, end: int, name: str) -> list[int]:
    """Where each document of a row begins, and where the last one ends."""
    if "document_lengths" in row:
        bounds = [0, *accumulate(row["document_lengths"])]
        if bounds[-1] != end:
            raise OracleError(
                f"step {row['step']}, row {name}: document_lengths sum to {bounds[-1]}, but there "
                f"are {end} tokens without padding"
            )
        return bounds
    positions = row["position_ids"][:end]
    starts = [place for place, position in enumerate(positions) if position == 0]
    if positions and starts[:1] != [0]:
        raise OracleError(f"step {row['step']}, row {name}: position_ids do not begin with 0")
    return [*starts, end]


def _check_steps(steps: Steps) -> None:
    if list(steps) != list(range(1, len(steps) + 1)):
        raise OracleError(
            f"the steps are {', '.join(map(str, steps))}; the oracle starts from the checkpoint "
            "and needs every step from 1 on"
        )
