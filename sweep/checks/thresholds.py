"""Thresholds, by check, figure, device, dtype and architecture, with where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweep import conf_file
from sweep.case.labels import Case
from sweep.errors import RequestError, reason
from sweep.files import conf_files

FILE = "thresholds.yaml"
CALIBRATED = "calibrated.yaml"  # made by sweep.calibrate; its values go before


class Threshold(BaseModel):
    """The largest difference that is none, and the measurements that say so."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    value: float = Field(gt=0)
    mean: float | None = Field(default=None, gt=0)  # of the signed mean over the steps
    source: str = Field(min_length=1)
    mean_source: str = ""  # empty: the same
    calibration: dict[str, Any] | None = None  # the runs that it is derived from
    mean_calibration: dict[str, Any] | None = None  # that the mean's bound is derived from
    arch: dict[str, Threshold] = Field(default_factory=dict)  # instead, for an architecture
    trainer: dict[str, Threshold] = Field(default_factory=dict)  # or for a trainer; goes before

    def of(self, case: Case) -> Threshold:
        """The one for the case's trainer or architecture, else this."""
        return self.trainer.get(case.trainer) or self.arch.get(case.arch, self)


class Table(BaseModel):
    """check -> figure -> device -> dtype -> threshold; checks whose failures are only shown."""

    model_config = ConfigDict(extra="forbid")

    advisory: list[str] = Field(default_factory=list)
    thresholds: dict[str, dict[str, dict[str, dict[str, Threshold]]]]


def of(check: str, figure: str, device: str, dtype: str) -> Threshold:
    """The threshold of a figure; raises RequestError where none is known."""
    threshold = _find(check, figure, device, dtype)
    if threshold is None:
        raise RequestError(
            f"conf/{FILE} has no {check}.{figure}.{device}.{dtype}; add it, with its source:"
            f" {dtype}: {{value: ..., source: ...}}"
        )
    return threshold


def of_case(check: str, figures: Sequence[str], case: Case) -> Threshold:
    """The threshold of a case for the first of the figures that has one; raises RequestError."""
    known = [figure for figure in figures if _find(check, figure, case.device, case.dtype)]
    return of(check, (known or figures[-1:])[0], case.device, case.dtype).of(case)


def configured(check: str, figure: str, case: Case) -> Threshold | None:
    """The threshold of a case where it is a choice: None without one."""
    threshold = _find(check, figure, case.device, case.dtype)
    return None if threshold is None else threshold.of(case)


def _find(check: str, figure: str, device: str, dtype: str) -> Threshold | None:
    return table().thresholds.get(check, {}).get(figure, {}).get(device, {}).get(dtype)


def is_advisory(check: str) -> bool:
    """Whether the check's failures are shown and fail nothing."""
    return check in table().advisory


def _merged(found: Any, over: Any) -> Any:
    """`found` with what `over` says, deep down; each keeps what the other does not say."""
    if not isinstance(found, dict) or not isinstance(over, dict):
        return over
    merged = found | {key: _merged(found.get(key), value) for key, value in over.items()}
    if "source" in found and "mean" in found and "mean" not in over:
        merged.setdefault("mean_source", found["source"])  # it is no part of what is said over it
    return merged


@cache
def table() -> Table:
    """All files, checked; raises RequestError naming what is wrong in them.

    What was calibrated goes before what was said, and a file of one's own before those of `conf/`.
    """
    found: Any = {}
    for path in conf_files(FILE, CALIBRATED):
        said = conf_file.read(path)
        found = _merged(found, said if said is not None or not found else {})  # some may be empty
        checked = _checked(found, path)
    return checked


def _checked(found: Any, path: Path) -> Table:
    """What the files up to that one say, as a table."""
    limits = found.copy() if isinstance(found, dict) else found
    advisory = limits.pop("advisory", []) if isinstance(limits, dict) else []
    try:
        return Table.model_validate({"advisory": advisory, "thresholds": limits})
    except ValidationError as error:
        raise RequestError(f"{path}: {reason(error)}") from None
