"""Moves a case's earlier run out of the way when a resumed sweep runs it again."""

from __future__ import annotations

from pathlib import Path

from sweep.case import file as case_file
from sweep.case.folder import ASIDE
from sweep.case.planned import Planned
from sweep.run import launch


def set_aside(folder: Path, planned: Planned) -> Path | None:
    """Move the case's earlier run into the sweep's ASIDE folder; processes left of it are ended.

    Returns where it is now; None where it had not been started.
    """
    case_dir = folder / planned.case.id
    launches = list(case_dir.glob("launches/*"))
    for directory in launches:
        launch.end_leftovers(directory)
    moved = None
    if launches:  # it was started
        old = folder / ASIDE / planned.case.id
        old.mkdir(parents=True, exist_ok=True)
        moved = case_dir.rename(old / str(len(list(old.iterdir())) + 1))
    case_file.write(planned, case_dir)
    return moved
