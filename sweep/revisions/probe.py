"""python -m sweep.revisions.probe FOLDER TREE: what `git bisect run` calls for each revision.

Exit codes are git's: 0 good, 1 bad, 125 it cannot be told, from 128 on the search ends.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from sweep.errors import RequestError, told
from sweep.report.result import short
from sweep.revisions import releases
from sweep.revisions.failure import State
from sweep.revisions.git import SHORT, clean, git
from sweep.revisions.trial import Outcome, Trial
from sweep.session.stopping import watched

CODES = {State.GOOD: 0, State.BAD: 1, State.CANNOT_RUN: 125, None: 0}
ENDS = 255
SHOWN = 160  # characters of a message in the list of revisions


def probe(folder: Path, tree: Path) -> Outcome:
    """Run the case at what is checked out in `tree`, once; raises RequestError."""
    trial = Trial.read(folder)
    revision = name_of(trial, tree)
    known = trial.outcome(revision)
    if known is not None:
        return known
    if trial.package is None:
        try:
            return trial.run(revision, None)
        finally:
            clean(tree)
    with tempfile.TemporaryDirectory(prefix="sweep-release-") as where:
        try:
            python = releases.install(trial, revision, Path(where))
        except RequestError as error:
            outcome = Outcome(revision=revision, state=State.CANNOT_RUN, reason=str(error))
            return trial.keep(outcome)
        return trial.run(revision, str(python))


def name_of(trial: Trial, tree: Path) -> str:
    """A commit's first characters, or the release that it stands for."""
    if trial.package is not None:
        return git(tree, "log", "-1", "--format=%s").rpartition(" ")[2]
    return git(tree, "rev-parse", "HEAD")[:SHORT]


def main() -> int:
    """The exit code for git; a line for the reader."""
    try:
        with watched():
            outcome = probe(Path(sys.argv[1]), Path(sys.argv[2]))
    except BaseException as error:  # noqa: BLE001  # any code below 128 would be a verdict
        line, code = told(error)
        print(line, file=sys.stderr)
        return max(code, 128) if code == 130 else ENDS
    said = outcome.reason or outcome.shown.line
    state = outcome.state or ("good" if not outcome.shown.checks else "bad")
    print(
        f"{outcome.revision:<{SHORT}}  {state:<10}  {short(said, SHOWN)}".rstrip(),
        file=sys.stderr,
        flush=True,
    )
    return CODES[outcome.state]


if __name__ == "__main__":
    sys.exit(main())
