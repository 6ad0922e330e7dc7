"""An empty SQLite store, kept in the cache: MLflow needs seconds to make its tables."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from sweep.provenance import version
from sweep.run.compile_cache import default_cache


def kept() -> Path:
    """Where the empty store of this version of MLflow is, or will be; OSError without a home."""
    return default_cache() / "store" / f"mlflow{version('mlflow')}.db"


def fill(path: Path) -> bool:
    """Make `path` a copy of the empty store; False if there is none."""
    with contextlib.suppress(OSError):
        shutil.copyfile(kept(), path)
        return True
    return False


def keep(path: Path) -> None:
    """Keep a copy of `path`, whose tables have just been made, if the cache can be written.

    Without the default experiment, whose address is a folder next to whoever made it: MLflow adds
    it to a store that has no experiment.
    """
    with contextlib.suppress(OSError, sqlite3.Error):
        target = kept()
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            shutil.copyfile(path, partial)
            with closing(sqlite3.connect(partial)) as opened, opened:
                opened.execute("DELETE FROM experiments")
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)


def forget() -> None:
    """Remove the copy that is kept, which turned out to be of no use."""
    with contextlib.suppress(OSError):
        kept().unlink(missing_ok=True)
