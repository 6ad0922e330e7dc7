"""YAML that people write and Hydra does not compose, read with one line for whatever is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sweep.case.labels import Case
from sweep.errors import RequestError


def read(path: Path, parse: Callable[[str], Any] = yaml.safe_load) -> Any:
    """What the file holds, not checked any further; raises RequestError if that cannot be read."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: {' '.join(str(error).split())[:300]}") from None


def _compiles(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return value


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]
"""Text that is a regular expression, checked when its file is read."""


class OfCases(BaseModel):
    """An entry that says something of some cases."""

    model_config = ConfigDict(extra="forbid")

    case: str = Field(min_length=1)  # glob on the case's id
    trainer: str = "*"  # glob on the trainer's name: trainers share the ids of cases

    def names(self, case: Case) -> bool:
        """Whether it is about that case."""
        return fnmatchcase(case.id, self.case) and fnmatchcase(case.trainer, self.trainer)
