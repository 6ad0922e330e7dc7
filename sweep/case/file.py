"""case.json: a case as it was planned, for its job and for whoever comes later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from sweep.case.labels import Case, plain, restored
from sweep.case.planned import Planned
from sweep.errors import RequestError, refusing
from sweep.files import write_json

NAME = "case.json"


class CaseFile(BaseModel):
    """Its labels, the resolved settings, and what it takes to compose it again."""

    case: Case
    settings: dict[str, Any] = Field(default_factory=dict)
    overrides: list[str] = Field(default_factory=list)
    unavailable: str | None = None
    config_dir: str | None = None
    env: dict[str, str] = Field(default_factory=dict)  # added to its job's

    @property
    def planned(self) -> Planned:
        """The case as its plan had it."""
        return Planned(self.case, restored(self.settings), tuple(self.overrides), self.unavailable,
                       self.config_dir, self.env)  # fmt: skip


def write(planned: Planned, case_dir: Path) -> None:
    """Write case.json."""
    file = CaseFile(
        case=planned.case, settings=plain(planned.settings), overrides=list(planned.overrides),
        unavailable=planned.unavailable, config_dir=planned.config_dir, env=dict(planned.env),
    )  # fmt: skip
    write_json(case_dir / NAME, file.model_dump())


def read(case_dir: Path) -> CaseFile:
    """Read case.json; raises RequestError for one that is gone or damaged."""
    path = case_dir / NAME
    if not exists(case_dir):
        hint = "name the suite that the case is of (suite=...), or start another sweep"
        raise RequestError(f"{path} is gone: {hint}")
    with refusing(path, "move the case's folder away"):
        return CaseFile.model_validate_json(path.read_bytes())


def exists(case_dir: Path) -> bool:
    """Whether the case was planned, and not set aside since."""
    return (case_dir / NAME).is_file()
