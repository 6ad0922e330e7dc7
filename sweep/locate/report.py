"""What was found, in words and as JSON."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, field
from typing import Any

from sweep.locate.place import OUTSIDE, Place

NAMED = 4  # other parameters that are named


@dataclass
class Report:
    """Where a case parts from its reference; `place` is None where it does not."""

    case: str
    reference: str
    place: Place | None
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def line(self) -> str:
        """All of it in one line, for under a failure."""
        if self.place is None:
            return f"nothing inside differs from {self.reference} but by rounding"
        place = self.place
        return f"step {place.step}, {place.stage}, {place.module}: {place.what}"

    def as_json(self) -> dict[str, Any]:
        """For a program; JSON has no infinity, which a difference is where a number is none."""
        values = {**asdict(self), "line": self.line}
        if self.place is not None and not math.isfinite(self.place.size or 0.0):
            values["place"]["size"] = None
        return values

    def __str__(self) -> str:
        head = f"{self.case}, held against {self.reference}"
        return "\n".join([head, *(f"  {line}" for line in (*self._lines(), *self.notes))])

    def _lines(self) -> list[str]:
        if self.place is None:
            return ["nothing that was recorded differs but by rounding"]
        place = self.place
        rows = [
            ("parts at", f"step {place.step}, {place.stage}"),
            ("module", place.module),
            ("what", place.what),
            ("where", _where(place)),
            ("heads", ", ".join(map(str, place.heads))),
            ("size", _size(place)),
            ("inputs", _inputs(place)),
            ("also", _more(place)),
        ]
        return [f"{name:<9} {text}" for name, text in rows if text]


def _where(place: Place) -> str:
    parts = [place.where]
    if place.tokens:
        parts = [f"{place.tokens} tokens, most at {place.where}"]
    if place.rank is not None:
        parts.append(f"on rank {place.rank}")
    return " ".join(filter(None, parts))


def _size(place: Place) -> str:
    if place.size is None:
        return ""
    return f"{place.size:.1e} relative; rounding does {place.rounding or 0.0:.1e} there"


def _inputs(place: Place) -> str:
    if place.stage not in ("forward", "backward", "loss") or place.module == OUTSIDE:
        return ""
    return "agree" if place.inputs_agree else "differ already"


def _more(place: Place) -> str:
    if not place.more:
        return ""
    rest = f" and {len(place.more) - NAMED} more" if len(place.more) > NAMED else ""
    return ", ".join(place.more[:NAMED]) + rest


def of_documents(problem: str) -> Place:
    """A document that the oracle says is not the source's: `step 1, row 0.1: ...`."""
    match = re.match(r"step (\d+), row ([^:]+): (.*)", problem)
    step, row, what = match.groups() if match else ("1", "", problem)
    return Place(int(step), "data", OUTSIDE, what, False, where=f"row {row}" if row else "")
