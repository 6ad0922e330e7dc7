"""YAML that people write and Hydra does not compose, read with one line for whatever is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from sweep.case.labels import Case
from sweep.errors import RequestError, refusing, unknown
from sweep.files import ConfDirs

# libyaml's takes a tenth of the time, where PyYAML has it.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path, parse: Callable[[str, Any], Any] = yaml.load) -> Any:
    """What the file holds, not checked any further; raises RequestError if that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        try:
            return parse(text, LOADER)
        except yaml.YAMLError:  # the other's complaint names the line that is wrong
            return parse(text, yaml.SafeLoader)
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


GLOB = "*?["
Pattern = Annotated[str, Field(min_length=1), AfterValidator(_compiles)]
"""Text that is a regular expression, checked when its file is read."""


class OfCases(BaseModel):
    """An entry of a list that people keep: something that is known of some cases."""

    model_config = ConfigDict(extra="forbid")

    case: str = Field(min_length=1)  # glob on the case's id
    trainer: str = "*"  # glob on the trainer's name: trainers share the ids of cases
    place: str  # file and line

    @field_validator("case")
    @classmethod
    def _is_of_an_arch(cls, value: str, info: ValidationInfo) -> str:
        """An id begins with its arch: one that is written out must be among the context's."""
        arch, archs = value.partition("-")[0], info.context or ()
        if not set(arch) & set(GLOB) and arch not in archs:
            raise ValueError(unknown("arch", arch, archs))
        return value

    def names(self, case: Case) -> bool:
        """Whether it is about that case."""
        return fnmatchcase(case.id, self.case) and fnmatchcase(case.trainer, self.trainer)


Entry = TypeVar("Entry", bound=OfCases)


@cache
def entries(conf: ConfDirs, name: str, kind: type[Entry]) -> Sequence[Entry]:
    """All entries of the files of that name; raises RequestError with the line of what is wrong."""
    archs = conf.choices_of("arch")
    return [entry for path in conf.files(name) for entry in _in_file(path, kind, archs)]


def _in_file(path: Path, kind: type[Entry], archs: Sequence[str]) -> list[Entry]:
    values, node = read(path), read(path, yaml.compose)
    if not isinstance(values, list) or not isinstance(node, yaml.SequenceNode):
        raise RequestError(f"{path}: say a list of entries, or [] for none")
    lines = [item.start_mark.line + 1 for item in node.value]
    return [
        _entry(path, line, value, kind, archs) for line, value in zip(lines, values, strict=True)
    ]


def _entry(path: Path, line: int, value: Any, kind: type[Entry], archs: Sequence[str]) -> Entry:
    where, keys = f"{path}: line {line}", [key for key in kind.model_fields if key != "place"]
    if not isinstance(value, dict) or "place" in value:
        raise RequestError(f"{where}: say {', '.join(keys)} alone")
    with refusing(where):
        place = f"{path.parent.name}/{path.name} line {line}"
        return kind.model_validate({**value, "place": place}, context=archs)
