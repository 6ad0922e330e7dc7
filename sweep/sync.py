"""python -m sweep.sync: record the results that MLflow could not take at the time."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from sweep.case import folder as sweep_folder
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, Usage
from sweep.errors import MachineryError, RequestError
from sweep.judge import ready
from sweep.report import Result
from sweep.report.runs import RECORDED, recorded
from sweep.session import closing, results
from sweep.session.recorded import without_own
from sweep.store import End, Location, Writer
from sweep.store.guard import guarded

USAGE = Usage(
    "sweep.sync",
    "Record what is on disk and not in MLflow, judged again; once, however often it runs.\n"
    "Exit codes: 0 everything is recorded, 2 wrong request, 3 the store does not take it.",
    "MLFLOW_TRACKING_URI=http://server:5000 python -m sweep.sync outputs=outputs",
    (OUTPUTS,),
)


def main(values: dict[str, str]) -> int:
    """Record sweep by sweep, the oldest first; returns 0 or raises RequestError, MachineryError."""
    outputs = Path(values["outputs"])
    if not outputs.is_dir():
        raise RequestError(f"outputs={outputs}: there is no such folder")
    ready()
    location = Location.at(outputs)
    damaged: list[str] = []
    with _alone(outputs):
        _take_over(location, outputs)
        for folder in sweep_folder.known(outputs):
            try:
                print(f"{folder.name}: {sync(location, folder)}")
            except RequestError as error:  # of this sweep alone
                damaged.append(str(error))
    if damaged:
        raise RequestError("; ".join(damaged))
    return 0


def _take_over(location: Location, outputs: Path) -> None:
    """A store that came here with its folder; raises MachineryError while it may be in use there.

    Its runs are all recorded once more, since they name the store by its old address: each is found
    in it, and files that were left behind are there again.
    """
    place = location.made_in()
    if place is None:
        return
    for folder in filter(_may_go_on, sweep_folder.known(outputs)):
        raise MachineryError(
            f"{outputs}/mlflow.db was made in {place}, where sweep {folder.name} may still run"
            f" ({sweep_folder.read_plan(folder)['driver']}): sync once it has ended, or in a day"
        )
    location.take_over()
    print(f"mlflow.db was made in {place}: its files are looked for in {outputs} from now on")


def _may_go_on(folder: Path) -> bool:
    try:
        return _goes_on(folder)
    except RequestError:  # damaged, which is told when its turn comes
        return False


def _goes_on(folder: Path) -> bool:
    driver = str(sweep_folder.read_plan(folder)["driver"])
    return sweep_folder.is_running(folder) and not sweep_folder.is_old(driver)


def sync(location: Location, folder: Path) -> str:
    """Record what a sweep has left out; returns what was done; raises MachineryError."""
    if _goes_on(folder):
        return "still runs; its own process records it"
    _forget_if_gone(location, folder)
    found, earlier, store = _results(folder), _set_aside(folder), location.shown
    todo = [one for one in [*earlier, *found] if one.facts and not recorded(one.folder, store)]
    if not any(one.facts for one in found):
        return "nothing ran"
    if not todo and recorded(folder, store):
        return "is recorded"
    writer = Writer(location, folder, patience=math.inf)
    ended = [one for one in found if not one.interrupted]
    with guarded(folder) as guard:
        for result in todo:
            writer.record(result)
        _, problem = closing.close(writer, folder, ended, _end(folder, len(ended)))
        guard.ended = problem is None
    if problem is not None:
        raise MachineryError(problem)
    if said := without_own(ended):
        print(f"{folder.name}: {said}", file=sys.stderr)
    return f"{len(todo)} case{'' if len(todo) == 1 else 's'} recorded"


def _forget_if_gone(location: Location, folder: Path) -> None:
    """A store that was lost has none of the sweep's runs, whatever its folder says."""
    files = [path for path in sorted(folder.glob(f"**/{RECORDED}"))
             if recorded(path.parent, location.shown)]  # fmt: skip
    run = recorded(files[0].parent) if files else None
    if run is not None and not location.has(run.run_id):
        for path in files:
            path.unlink()


def _results(folder: Path) -> list[Result]:
    return results.load_all(folder / one for one in sweep_folder.read_plan(folder)["cases"])


def _set_aside(folder: Path) -> list[Result]:
    """The runs of cases that ran again later."""
    return results.load_all(sorted((folder / sweep_folder.ASIDE).glob("*/*")))


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
