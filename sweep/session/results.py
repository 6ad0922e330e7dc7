"""Results from the folder of a sweep, as they were when it ended or was cut off."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.checks import Context
from sweep.judge import findings, judge, unavailable
from sweep.report import Result, rerun_command


def load(case_dir: Path) -> Result | None:
    """The result of a case, an interrupted one as well; None if it left none."""
    if not case_file.exists(case_dir):
        return None
    file, facts = case_file.read(case_dir), facts_file.load(case_dir)
    if facts is None and file.unavailable is None:
        return None
    judgement = findings.load(case_dir)
    if judgement is None and facts is not None:
        judgement = judge(facts, Context())
    return Result(
        judgement or unavailable(file.case, str(file.unavailable)),
        case_dir,
        rerun_command(file.overrides, file.config_dir),
        facts,
    )


def load_all(case_dirs: Iterable[Path]) -> list[Result]:
    """The results of these cases, those without any left out."""
    return [result for one in case_dirs if (result := load(one)) is not None]
