"""Results from the folder of a sweep, as they were when it ended or was cut off."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable
from pathlib import Path

from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.checks import Context
from sweep.errors import RequestError
from sweep.files import ConfDirs
from sweep.judge import Judgement, findings, judge, unavailable, unreadable
from sweep.report import Result, rerun_command


def load(case_dir: Path, conf: ConfDirs) -> Result | None:
    """The result of a case, an interrupted one as well; None if it left none."""
    if not case_file.exists(case_dir):
        return None
    file = case_file.read(case_dir)
    facts, why = facts_file.load_or_why(case_dir)
    if facts is not None:
        judgement = _saved_judgement(case_dir) or judge(facts, Context(conf=conf))
    elif why:
        judgement = unreadable(file.case, why)
    elif file.unavailable is not None:
        judgement = unavailable(file.case, file.unavailable)
    else:
        return None
    return Result(judgement, case_dir, rerun_command(file.overrides, file.config_dir), facts)


def _saved_judgement(case_dir: Path) -> Judgement | None:
    """None also for a damaged file: the case is judged again then."""
    with contextlib.suppress(RequestError):
        return findings.load(case_dir)
    return None


def load_all(case_dirs: Iterable[Path], conf: ConfDirs) -> list[Result]:
    """The results of these cases; without those that left none or cannot be identified any more."""
    results = []
    for case_dir in case_dirs:
        try:
            results.append(load(case_dir, conf))
        except RequestError as error:  # its case.json
            print(f"{case_dir.name} is left out: {error}", file=sys.stderr)
    return [result for result in results if result is not None]
