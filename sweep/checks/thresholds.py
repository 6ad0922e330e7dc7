"""Thresholds, by check, figure, device, dtype and architecture, with where each comes from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sweep import conf_file
from sweep.case.labels import Case
from sweep.errors import RequestError, refusing
from sweep.files import ConfDirs

FILE = "thresholds.yaml"
SPECIAL = ("arch", "trainer")  # thresholds of their own, within another
CALIBRATED = "calibrated.yaml"  # made by sweep.calibrate; its values go before


class Threshold(BaseModel):
    """The largest difference still accepted, and the measurements behind it."""

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
    """check -> figure -> device -> dtype -> threshold; and what is said of whole checks.

    `advisory`: checks whose failures are only shown; `exact`: trainer -> devices on which its
    correct resumes are equal to the bit.
    """

    model_config = ConfigDict(extra="forbid")

    advisory: list[str] = Field(default_factory=list)
    exact: dict[str, list[Literal["cpu", "cuda"]]] = Field(default_factory=dict)
    thresholds: dict[str, dict[str, dict[str, dict[str, Threshold]]]]

    def of(self, check: str, figure: str, device: str, dtype: str) -> Threshold:
        """The threshold of a figure; raises RequestError where none is known."""
        threshold = self._find(check, figure, device, dtype)
        if threshold is None:
            raise RequestError(
                f"conf/{FILE} has no {check}.{figure}.{device}.{dtype}; add it, with its source:"
                f" {dtype}: {{value: ..., source: ...}}"
            )
        return threshold

    def of_case(self, check: str, figures: Sequence[str], case: Case) -> Threshold:
        """The threshold of a case for the first figure that has one; raises RequestError."""
        known = [name for name in figures if self._find(check, name, case.device, case.dtype)]
        return self.of(check, (known or figures[-1:])[0], case.device, case.dtype).of(case)

    def configured(self, check: str, figure: str, case: Case) -> Threshold | None:
        """The threshold of a case; None where the figure needs none and has none."""
        threshold = self._find(check, figure, case.device, case.dtype)
        return None if threshold is None else threshold.of(case)

    def is_exact(self, case: Case) -> bool:
        """Whether correct resumes of the case's trainer on its device are equal to the bit."""
        return case.device in self.exact.get(case.trainer, [])

    def _find(self, check: str, figure: str, device: str, dtype: str) -> Threshold | None:
        return self.thresholds.get(check, {}).get(figure, {}).get(device, {}).get(dtype)


def _merged(base: Any, over: Any) -> Any:
    """`found` with what `over` says, deep down; each keeps what the other does not say."""
    if not isinstance(base, dict) or not isinstance(over, dict):
        return over
    merged = base | {key: _merged(base.get(key), value) for key, value in over.items()}
    if "source" in base and "mean" in base and "mean" not in over:
        merged.setdefault("mean_source", base["source"])  # it is no part of what is said over it
    return merged


def _replaced(shipped: Any, own: Any) -> Any:
    """`shipped` with one's own: a value replaces the shipped one with its mean and its source.

    What is shipped for single architectures and trainers stays.
    """
    if not isinstance(shipped, dict) or not isinstance(own, dict):
        return own
    kept = {key: shipped[key] for key in SPECIAL if key in shipped} if "value" in own else shipped
    return kept | {key: _replaced(kept.get(key), value) for key, value in own.items()}


@cache
def table(conf: ConfDirs) -> Table:
    """All files, checked; raises RequestError naming what is wrong in them.

    What was calibrated goes before what was said, and a file of one's own before those of `conf/`.
    """
    shipped: Any = {}
    own: Any = {}
    folder = None
    for path in conf.files(FILE, CALIBRATED):
        if path.parent != folder:
            shipped, own, folder = _replaced(shipped, own), {}, path.parent
        said = conf_file.read(path)
        own = _merged(own, said if said is not None or not own else {})  # some may be empty
        checked = _checked(_replaced(shipped, own), path)
    return checked


def _checked(values: Any, path: Path) -> Table:
    """What the files up to that one say, as a table."""
    limits = values.copy() if isinstance(values, dict) else values
    of_checks = {
        name: limits.pop(name)
        for name in ("advisory", "exact")
        if isinstance(limits, dict) and name in limits
    }
    with refusing(path):
        return Table.model_validate(of_checks | {"thresholds": limits})
