"""Configuration that a test makes its own."""

from __future__ import annotations

from pathlib import Path

from sweep import conf_file
from sweep.checks import thresholds
from sweep.checks.thresholds import Table
from sweep.files import ConfDirs, conf_dir


def limits() -> Table:
    """The thresholds that ship."""
    return thresholds.table(ConfDirs())


def instead_of_ours(folder: Path, own: Path | None = None, without: str = "") -> ConfDirs:
    """`folder` in the place of `conf/`, whose files it links but one and those that it has.

    What was read of the two folders before is forgotten.
    """
    for path in conf_dir().iterdir():
        if path.name != without and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    conf_file.entries.cache_clear()
    thresholds.table.cache_clear()
    return ConfDirs(own, folder)
