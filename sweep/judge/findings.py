"""findings.json: what the checks say of a case, written again each time that it is judged."""

from __future__ import annotations

import json
from pathlib import Path

from sweep.errors import refusing
from sweep.files import write_text
from sweep.judge.verdict import Judgement

NAME = "findings.json"


def text(judgement: Judgement) -> str:
    """The file's text."""
    return json.dumps(judgement.model_dump(mode="json"), indent=2) + "\n"


def save(judgement: Judgement, case_dir: Path) -> None:
    """Write findings.json."""
    write_text(case_dir / NAME, text(judgement))


def load(case_dir: Path) -> Judgement | None:
    """Read findings.json; None if the case was never judged; raises RequestError if damaged."""
    path = case_dir / NAME
    if not path.is_file():
        return None
    with refusing(path, "move the case's folder away"):
        return Judgement.model_validate_json(path.read_bytes())
