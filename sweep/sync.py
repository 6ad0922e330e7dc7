"""python -m sweep.sync: record the results that MLflow could not take at the time."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sweep.case import folder as sweep_folder
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, Usage
from sweep.errors import MachineryError, RequestError
from sweep.files import ConfDirs
from sweep.judge import ready
from sweep.report import Result
from sweep.report.runs import RECORDED, run_of
from sweep.session import closing, results
from sweep.session.rejudge import config_dirs, without_own
from sweep.store import End, Location, Writer
from sweep.store.guard import guarded

USAGE = Usage(
    "sweep.sync",
    "Record what is on disk and not in MLflow, judged again; once, however often it runs.\n"
    "Exit codes: 0 everything is recorded, 2 wrong request, 3 the store does not take it.",
    "MLFLOW_TRACKING_URI=http://server:5000 python -m sweep.sync outputs=outputs",
    (OUTPUTS,),
)


def main(values: dict[str, str], conf: ConfDirs) -> int:
    """Record sweep by sweep, the oldest first; returns 0 or raises RequestError, MachineryError."""
    outputs = Path(values["outputs"])
    if not outputs.is_dir():
        raise RequestError(f"outputs={outputs}: there is no such folder")
    ready(conf)
    location = Location.at(outputs)
    damaged: list[str] = []
    with _alone(outputs):
        if location.exists:
            with location.answering("open its store"):
                _ = location.client
        for folder in sweep_folder.known(outputs):
            try:
                print(f"{folder.name}: {sync(location, folder, conf)}")
            except RequestError as error:  # of this sweep alone
                damaged.append(str(error))
    if damaged:
        raise RequestError("; ".join(damaged))
    return 0


def sync(location: Location, folder: Path, conf: ConfDirs) -> str:
    """Record what is missing of a sweep; returns a line that reports it; raises MachineryError."""
    if sweep_folder.is_running(folder):
        return "still runs; its own process records it"
    _forget_if_gone(location, folder)
    latest = results.load_all(sweep_folder.case_dirs(folder), conf)
    earlier = results.load_all(sorted((folder / sweep_folder.ASIDE).glob("*/*")), conf)
    conf = _with_its_own(conf, latest)
    left = [
        result
        for result in [*earlier, *latest]
        if result.facts and not run_of(result.folder, location.shown)
    ]
    if not any(result.facts for result in latest):
        return "nothing ran"
    if not left and run_of(folder, location.shown):
        return "is recorded"
    writer = Writer(location, folder, patience=math.inf)
    ended = [result for result in latest if not result.interrupted]
    with guarded(folder) as guard:
        for result in left:
            writer.record(result)
        _, problem = closing.close(writer, folder, ended, _end(folder, len(ended)), conf)
        guard.ended = problem is None
    if problem is not None:
        raise MachineryError(problem)
    if warning := without_own(ended, conf):
        print(f"{folder.name}: {warning}", file=sys.stderr)
    return f"{len(left)} case{'' if len(left) == 1 else 's'} recorded"


def _with_its_own(conf: ConfDirs, results: Sequence[Result]) -> ConfDirs:
    """The folders given on the command line, else those that the cases ran with, if still there."""
    there = [folder for folder in config_dirs(results) if Path(folder).is_dir()]
    if conf.own is not None or not there:
        return conf
    own = ConfDirs.having(there[0])
    ready(own)
    return own


def _forget_if_gone(location: Location, folder: Path) -> None:
    """If the store was replaced, forget that the sweep's folder says it is recorded."""
    files = [
        path
        for path in sorted(folder.glob(f"**/{RECORDED}"))
        if run_of(path.parent, location.shown)
    ]
    run = run_of(files[0].parent) if files else None
    if run is not None and not location.has(run.run_id):
        for path in files:
            path.unlink()


def _end(folder: Path, ended: int) -> End:
    plan = sweep_folder.read_plan(folder)
    missing = ended < len(plan["cases"])
    detached = plan["driver"] == sweep_folder.LEFT
    return End(interrupted=missing and not detached, unfinished=missing and detached)


@contextmanager
def _alone(outputs: Path) -> Iterator[None]:
    try:
        with FileLock(outputs / ".sync.lock", timeout=0):
            yield
    except Timeout:
        raise RequestError(f"another sweep.sync works on {outputs}; wait for it") from None


if __name__ == "__main__":
    sys.exit(arguments.run(USAGE, main))
