"""Results from the folder of a sweep, as they were when it ended or was cut off."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sweep import facts as facts_file
from sweep.case import Case
from sweep.checks import Context
from sweep.errors import RequestError
from sweep.judge import Judgement, judge, unavailable
from sweep.report import Result, rerun_command

FINDINGS = "findings.json"


def load(case_dir: Path) -> Result | None:
    """The result of a case, an interrupted one as well; None if it left none."""
    if not (case_dir / "case.json").is_file():
        return None
    case = _json(case_dir / "case.json")
    facts = facts_file.load(case_dir)
    if facts is None and not case.get("unavailable"):
        return None
    labels = Case.model_validate(case["case"])
    judgement = _judgement(case_dir)
    if judgement is None:
        reason = str(case.get("unavailable"))
        judgement = judge(facts, Context()) if facts else unavailable(labels, reason)
    again = rerun_command(case.get("overrides", []), case.get("config_dir"))
    return Result(judgement, case_dir, again, facts)


def load_all(case_dirs: Iterable[Path]) -> list[Result]:
    """The results of these cases, those without any left out."""
    return [result for one in case_dirs if (result := load(one)) is not None]


def _judgement(case_dir: Path) -> Judgement | None:
    path = case_dir / FINDINGS
    return Judgement.model_validate(_json(path)) if path.is_file() else None


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RequestError(f"{path}: {error}; move the case's folder away") from None
