"""python -m sweep.prune: remove what is large of old nights, and keep their facts and verdicts."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from sweep.case import folder as sweep_folder
from sweep.case.folder import ASIDE
from sweep.cli import arguments
from sweep.cli.arguments import Argument, Usage
from sweep.errors import RequestError
from sweep.files import ConfDirs
from sweep.report.runs import RECORDED
from sweep.slurm import jobs
from sweep.store import Location, pruning

CASE_FILES = frozenset({"case.json", "facts.json", "findings.json", RECORDED})
REPORTS = (".md", ".json", ".xml", ".html")  # in a sweep's own folder
A_DAY = 86_400.0
USAGE = Usage(
    "sweep.prune",
    "Remove the logs, checkpoints and artifacts of all but the last nights, on disk and in MLflow."
    "\nFacts, verdicts and reports stay, so that old nights can be judged again, compared with and"
    "\nshown by sweep.history. A night is a day (UTC) with a sweep of the same suite; pinned sweeps"
    "\nand those that run are left alone. Exit codes: 0, 2 wrong request, 3 no store.",
    "python -m sweep.prune keep=90 outputs=outputs",
    (
        Argument("keep", "how many nights of each suite to leave as they are"),
        Argument("outputs", "the folder of results"),
        Argument("dry", "true: say what would go, and remove nothing", "false"),
    ),
)


def main(values: Mapping[str, str], _conf: ConfDirs) -> int:
    """Prune; returns 0; raises RequestError, MachineryError."""
    outputs, keep = Path(values["outputs"]), _number(values["keep"])
    if values["dry"] not in ("true", "false"):
        raise RequestError(f"dry={values['dry']}: say true or false")
    if not outputs.is_dir():
        raise RequestError(f"outputs={outputs}: there is no such folder")
    is_dry = values["dry"] == "true"
    location = Location.at(outputs)
    pinned = pruning.pinned(location)
    old = [folder for folder in beyond(outputs, keep) if folder.name not in pinned]
    freed = 0
    for folder in filter(_is_over, old):
        large = list(_large(folder))
        size = sum(map(_size, large))
        freed += size
        if not is_dry:
            _remove(large)
        if large:
            print(f"{folder.name}: {_said(size)}")
    in_store = pruning.prune(location, keep, pinned, is_dry)
    verb = "would be freed" if is_dry else "freed"
    print(f"{_said(freed)} {verb} in {outputs}; {in_store} runs of {location.shown} pruned")
    return 0


def beyond(outputs: Path, keep: int) -> list[Path]:
    """The sweeps' folders that are not of the last `keep` days with a sweep of their suite."""
    nights: dict[str, dict[int, list[Path]]] = {}
    for folder in sweep_folder.known(outputs):
        try:
            plan = sweep_folder.read_plan(folder)
            day = int(float(plan["started"]) // A_DAY)
            nights.setdefault(str(plan["experiment"]), {}).setdefault(day, []).append(folder)
        except (RequestError, KeyError, TypeError, ValueError) as error:
            print(f"{folder.name} is left as it is: {error}", file=sys.stderr)
    return [
        folder
        for days in nights.values()
        for day in sorted(days)[: max(0, len(days) - keep)]
        for folder in days[day]
    ]


def _is_over(folder: Path) -> bool:
    if sweep_folder.is_running(folder):
        return False
    return sweep_folder.read_plan(folder)["driver"] != sweep_folder.LEFT or not jobs.active(folder)


def _large(folder: Path) -> Iterator[Path]:
    """What goes: all that is not a fact, a finding or a report."""
    cases = set(sweep_folder.read_plan(folder)["cases"])
    for path in folder.iterdir():
        if path.name in cases and path.is_dir() and not path.is_symlink():
            yield from _but(path, CASE_FILES)
        elif path.name == ASIDE:
            for case_dir in path.glob("*/*"):
                yield from _but(case_dir, CASE_FILES)
        elif path.suffix not in REPORTS:
            yield path


def _but(folder: Path, kept: Iterable[str]) -> Iterator[Path]:
    if folder.is_dir() and not folder.is_symlink():
        yield from (path for path in folder.iterdir() if path.name not in kept)


def _size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*"))


def _remove(paths: Sequence[Path]) -> None:
    """A link goes, and not what it leads to."""
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _said(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _number(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 100_000:
        raise RequestError(f"keep={value}: say how many nights to leave, as in keep=90")
    return int(value)


if __name__ == "__main__":
    sys.exit(arguments.run(USAGE, main))
