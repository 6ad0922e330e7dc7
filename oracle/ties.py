"""Which way a pick falls whose scores are equal but for rounding.

Another order of adding up can turn such a pick, of an expert or of an indexer's key, and training
is another from there on. So that the steps after it can be compared as strictly, the trainer's loss
and gradient norm say which way each fell. Nothing else of them is used, and only picks that are
close by the oracle's own scores can be turned.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from oracle.errors import OracleError

T = TypeVar("T")
Figures = dict[str, Any]
Turned = tuple[tuple[int, int], ...]
"""(document, number of the close pick in it) of each pick that falls the other way."""
Close = dict[int, int]
"""How many close picks each document has."""
Run = tuple[Figures, Close, tuple[float, dict[str, float]]]
Reported = Mapping[int, Figures]
LIMITS = {"loss": 5e-7, "grad_norm": 5e-6}
MOST_CANDIDATES, MOST_TURNED = 16, 3


def trusted(reported: T | None, dtype: str) -> T | None:
    """What tells how picks fell; nothing in bfloat16, which is off by more than a pick anyway."""
    return reported if dtype == "float32" else None


def settled(run: Callable[[Turned], Run], reported: Figures | None) -> tuple[Turned, Run]:
    """The run with those picks turned that bring it nearest to what is reported, if any do."""
    turned: Turned = ()
    best, is_last = run(turned), True
    while reported and len(turned) < MOST_TURNED and distance(best, reported) > 1:
        candidates = [(*turned, pick) for pick in picks(best[1]) if pick not in turned]
        if not candidates:
            break
        is_last = False
        runs = {candidate: run(candidate) for candidate in candidates[:MOST_CANDIDATES]}
        nearest = min(runs, key=lambda candidate: distance(runs[candidate], reported))
        if distance(runs[nearest], reported) >= distance(best, reported):
            break
        turned, best = nearest, runs[nearest]
    return turned, best if is_last else run(turned)  # the model has the gradient of the last run


def picks(close: Close) -> list[tuple[int, int]]:
    """All close picks."""
    return [(document, number) for document, count in close.items() for number in range(count)]


def distance(run: Run, reported: Figures) -> float:
    """How many times its limit the farther of loss and gradient norm is off."""
    ours = {"loss": run[0]["loss"], "grad_norm": run[2][0]}
    known = [name for name in LIMITS if isinstance(reported.get(name), float)]
    return max((abs(ours[x] / (reported[x] or 1.0) - 1) / LIMITS[x] for x in known), default=0.0)


def read(path: Path) -> Reported:
    """A trainer's figures by step, a JSON object per line; raises `OracleError`."""
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return {line["step"]: line for line in lines}
    except OSError as error:
        raise OracleError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise OracleError(f'{path} is not lines of {{"step": 1, "loss": 2.0, ...}}') from None
