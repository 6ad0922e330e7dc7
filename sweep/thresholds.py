"""Thresholds, by check, figure, device and dtype, with where each comes from."""

from __future__ import annotations

from functools import cache

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sweep.errors import RequestError
from sweep.files import conf_dir

FILE = "thresholds.yaml"


class Threshold(BaseModel):
    """The largest difference that is none, and the measurements that say so."""

    model_config = ConfigDict(extra="forbid")

    value: float = Field(gt=0)
    source: str


class Table(BaseModel):
    """check -> figure -> device -> dtype -> threshold."""

    model_config = ConfigDict(extra="forbid")

    thresholds: dict[str, dict[str, dict[str, dict[str, Threshold]]]]


def of(check: str, figure: str, device: str, dtype: str) -> Threshold:
    """The threshold of a figure; raises RequestError where none is known."""
    try:
        return table().thresholds[check][figure][device][dtype]
    except KeyError:
        raise RequestError(
            f"conf/{FILE} has no {check}.{figure}.{device}.{dtype}; add it, with its source"
        ) from None


@cache
def table() -> Table:
    """The file, checked; raises RequestError naming what is wrong in it."""
    path = conf_dir() / FILE
    try:
        return Table.model_validate({"thresholds": yaml.safe_load(path.read_text("utf-8"))})
    except (yaml.YAMLError, ValidationError) as error:
        raise RequestError(f"{path}: {' '.join(str(error).split())[:300]}") from None
