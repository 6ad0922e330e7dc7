"""Writes conf/calibrated.yaml: thresholds, and the runs that each is derived from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from sweep import conf_file
from sweep.calibrate.rule import Population
from sweep.checks.thresholds import CALIBRATED
from sweep.files import write_text

HEAD = """\
# Written by `python -m sweep.calibrate`; do not edit. Overrides conf/thresholds.yaml.
# docs/calibration.md shows the runs that each threshold is derived from.
"""


def entry(population: Population, made: Mapping[str, Any]) -> dict[str, Any]:
    """A threshold with the runs that it is derived from, or that of its mean."""
    source = (
        f"calibrated: correct at most {population.largest_correct:.1e}, broken at least"
        f" {population.weakest.value:.1e}"
    )
    runs = {"made": made, **provenance(population)}
    if population.is_mean:
        return {"mean": population.threshold, "mean_source": source, "mean_calibration": runs}
    return {"value": population.threshold, "source": source, "calibration": runs}


def provenance(population: Population) -> dict[str, Any]:
    """The runs that a threshold is derived from."""
    return {
        "correct_runs": len(population.correct),
        "correct_at_most": float(f"{population.largest_correct:.3g}"),
        "floor": float(f"{population.floor:.3g}"),
        "broken_runs": len(population.broken),
        "broken_at_least": float(f"{population.weakest.value:.3g}"),
        "weakest": population.weakest.case,
        "separation": float(f"{population.separation:.3g}"),
    }


def write(
    folder: Path, measured: Sequence[Population], sweep: str, versions: Mapping[str, str], day: date
) -> Path:
    """Write the thresholds of these figures; other entries of the file stay."""
    path = folder / CALIBRATED
    table: dict[str, Any] = conf_file.read(path) if path.is_file() else {}
    made = {"date": day.isoformat(), "sweep": sweep, **versions}  # written once, as a YAML anchor
    for population in measured:
        dtypes = table.setdefault(population.check, {}).setdefault(population.figure, {})
        dtypes = dtypes.setdefault(population.device, {})
        # A mean is added to the entry of its value.
        before = dtypes.get(population.dtype, {}) if population.is_mean else {}
        dtypes[population.dtype] = before | entry(population, made)
    write_text(path, HEAD + yaml.safe_dump(table, sort_keys=False, width=100))
    return path
