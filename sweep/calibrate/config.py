"""Calibrated thresholds as configuration, with where each comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from sweep.calibrate.rule import Population
from sweep.checks.thresholds import CALIBRATED
from sweep.files import write_text

HEAD = """\
# Made by `python -m sweep.calibrate`, over what conf/thresholds.yaml says; not to be edited.
# docs/calibration.md shows the runs that each is derived from.
"""


def entry(one: Population, sweep: str, versions: Mapping[str, str], day: date) -> dict[str, Any]:
    """A threshold with its provenance, or that of its mean."""
    source = (
        f"calibrated: correct at most {one.largest_correct:.1e}, broken at least"
        f" {one.weakest.value:.1e}"
    )
    runs = {"date": day.isoformat(), "sweep": sweep, **provenance(one), **versions}
    if one.is_mean:
        return {"mean": one.threshold, "mean_source": source, "mean_calibration": runs}
    return {"value": one.threshold, "source": source, "calibration": runs}


def provenance(one: Population) -> dict[str, Any]:
    """The runs that a threshold is derived from."""
    return {
        "correct_runs": len(one.correct),
        "correct_at_most": float(f"{one.largest_correct:.3g}"),
        "floor": float(f"{one.floor:.3g}"),
        "broken_runs": len(one.broken),
        "broken_at_least": float(f"{one.weakest.value:.3g}"),
        "weakest": one.weakest.case,
        "separation": float(f"{one.separation:.3g}"),
    }


def write(
    folder: Path, found: Sequence[Population], sweep: str, versions: Mapping[str, str], day: date
) -> Path:
    """Write the thresholds of those figures; others that the file has are kept."""
    path = folder / CALIBRATED
    table: dict[str, Any] = yaml.safe_load(path.read_text("utf-8")) if path.is_file() else {}
    for one in found:
        dtypes = table.setdefault(one.check, {}).setdefault(one.figure, {})
        dtypes = dtypes.setdefault(one.device, {})
        before = dtypes.get(one.dtype, {}) if one.is_mean else {}  # a mean goes with its value
        dtypes[one.dtype] = before | entry(one, sweep, versions, day)
    write_text(path, HEAD + yaml.safe_dump(table, sort_keys=False, width=100))
    return path
