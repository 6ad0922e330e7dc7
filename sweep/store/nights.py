"""What a sweep came to, small enough for tags of its own run: verdicts, margins and provenance.

It is made of the tags and metrics that the runs of its cases have, and can be made of them again.
"""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep.checks import Outcome
from sweep.provenance import COMPARED
from sweep.store import entries

PREFIX = "mlflow.sweep.night."  # the UI hides tags of this kind; a number follows
VERSION = 1
ROOM = 7000  # characters in each tag
LARGEST = 64_000_000  # bytes that a summary of somebody else's may unpack to
FAR = 1e9  # what stands for a margin that is no number
BAD = (Outcome.FAIL, Outcome.INCONCLUSIVE)


@dataclass(frozen=True)
class CaseNight:
    """A case in one sweep."""

    case_id: str
    verdict: str
    failing: tuple[str, ...] = ()  # checks, by name
    margins: Mapping[str, float] = field(default_factory=dict)  # check -> multiple of its threshold
    seconds: float | None = None
    about: Mapping[str, str] = field(default_factory=dict)  # its provenance
    settings: str = ""  # digest
    checkpoint: str = ""  # digest


@dataclass(frozen=True)
class Night:
    """A sweep; `missing` are the cases that it planned and has no result of."""

    sweep_id: str
    started: float  # seconds since the epoch
    experiment: str
    cases: Mapping[str, CaseNight]
    missing: Sequence[str] = ()
    run_id: str = ""
    experiment_id: str = ""


def case_night(tags: Mapping[str, str], metrics: Mapping[str, float]) -> CaseNight:
    """A case from what its run in MLflow says."""
    checks = {key.removeprefix(entries.CHECK): key for key in tags if key.startswith(entries.CHECK)}
    margins = {
        key.removeprefix(entries.MARGIN): _short(value)
        for key, value in metrics.items()
        if key.startswith(entries.MARGIN)
    }
    seconds = metrics.get("time/total_seconds")
    return CaseNight(
        case_id=tags["case_id"],
        verdict=tags.get("verdict", ""),
        failing=tuple(sorted(name for name, key in checks.items() if tags[key] in BAD)),
        margins=dict(sorted(margins.items())),
        seconds=None if seconds is None else round(seconds, 1),
        about={name: tags[name] for name in COMPARED if name in tags},
        settings=tags.get("identity", ""),
        checkpoint=tags.get("checkpoint", ""),
    )


def packed(cases: Iterable[CaseNight], missing: Sequence[str]) -> dict[str, str]:
    """The tags that keep a night: compressed JSON, in as many parts as it takes."""
    about: list[Mapping[str, str]] = []
    rows = []
    for case in cases:
        if case.about not in about:
            about.append(case.about)
        rows.append(
            [
                case.case_id,
                case.verdict,
                case.failing,
                case.margins,
                case.seconds,
                about.index(case.about),
                case.settings,
                case.checkpoint,
            ]
        )
    known = {"version": VERSION, "about": about, "cases": rows, "missing": list(missing)}
    text = json.dumps(known, separators=(",", ":"))
    data = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    parts = [data[at : at + ROOM] for at in range(0, len(data), ROOM)]
    tags = {f"{PREFIX}{number}": part for number, part in enumerate(parts)}
    return tags | {f"{PREFIX}parts": str(len(parts))}  # of an earlier, longer one more may be there


def unpacked(tags: Mapping[str, str]) -> tuple[dict[str, CaseNight], list[str]] | None:
    """(cases by id, planned cases without a result); None where there is none that can be read."""
    try:
        count = int(tags[f"{PREFIX}parts"])
        data = base64.b85decode("".join(tags[f"{PREFIX}{number}"] for number in range(count)))
        known = json.loads(zlib.decompressobj().decompress(data, LARGEST))
        if known["version"] != VERSION:
            return None
        cases = [_case(row, known["about"]) for row in known["cases"]]
        return {case.case_id: case for case in cases}, list(map(str, known["missing"]))
    except (KeyError, ValueError, TypeError, IndexError, zlib.error):
        return None


def _case(row: Sequence[Any], about: Sequence[Mapping[str, str]]) -> CaseNight:
    case_id, verdict, failing, margins, seconds, number, settings, checkpoint = row
    return CaseNight(
        str(case_id),
        str(verdict),
        tuple(failing),
        margins,
        seconds,
        about[number],
        settings,
        checkpoint,
    )


def _short(value: float) -> float:
    """Three digits; what is no number, or beyond all measure, is FAR."""
    return float(f"{value:.3g}") if math.isfinite(value) and value < FAR else FAR
