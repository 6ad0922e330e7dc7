"""A look into each failed comparison of a sweep that ends: `locate=true`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sweep.checks import Outcome
from sweep.errors import MachineryError, RequestError, told
from sweep.files import write_json
from sweep.judge import Verdict
from sweep.locate.look import look
from sweep.report import Result
from sweep.report.result import LOCATED

COMPARING = ("resume", "parity", "oracle")
"""Checks that hold what a case computed against something."""


def look_into(folder: Path, results: Sequence[Result]) -> None:
    """Leave an answer in the folder of each case that failed a comparison; never raises.

    Where it cannot be told, the answer says why.
    """
    failed = [result for result in results if _differed(result) and result.folder.is_dir()]
    for number, result in enumerate(failed, start=1):
        print(f"locate: {result.case.id} ({number} of {len(failed)})", file=sys.stderr)
        try:
            look(folder, result.case.id)
        except (RequestError, MachineryError, OSError) as error:
            line = f"not located: {told(error)[0]}"
            write_json(result.folder / LOCATED, {"line": line})


def _differed(result: Result) -> bool:
    return result.judgement.verdict is Verdict.FAILED and any(
        finding.check in COMPARING and finding.outcome is Outcome.FAIL
        for finding in result.judgement.findings
    )
