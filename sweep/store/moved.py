"""A SQLite store that was moved or copied with its folder.

MLflow keeps the whole address of every file, and looks for it where the store was made.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

ADDRESSES = (("experiments", "artifact_location"), ("runs", "artifact_uri"))  # in MLflow's tables


def made_in(file: Path, artifacts: str) -> Path | None:
    """Where it was made; None if that was here, where its files are under `artifacts`."""
    places = [_path(address).parent for address in _foreign(file, artifacts)]
    return places[0] if places else None


def take_over(file: Path, artifacts: str) -> None:
    """Have every address lead here; raises what SQLite raises."""
    for old in _foreign(file, artifacts):
        with closing(sqlite3.connect(file)) as store, store:
            for table, column in ADDRESSES:
                store.execute(
                    f"UPDATE {table} SET {column} = ? || substr({column}, ?)"
                    f" WHERE {column} = ? OR substr({column}, 1, ?) = ?",
                    (artifacts, len(old) + 1, old, len(old) + 1, f"{old}/"),
                )


def _foreign(file: Path, artifacts: str) -> list[str]:
    """The addresses that lead elsewhere, of experiments whose files are to be beside the store."""
    here = _path(artifacts)
    if not file.is_file() or here.parent != file.parent:
        return []
    with closing(sqlite3.connect(file)) as store:
        try:
            found = store.execute("SELECT DISTINCT artifact_location FROM experiments").fetchall()
        except sqlite3.DatabaseError:  # MLflow says what is wrong with it
            return []
    return [address for (address,) in found
            if _path(address).name == here.name and not _same(_path(address), here)]  # fmt: skip


def _path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _same(one: Path, other: Path) -> bool:
    """Also by another way, as through a link."""
    return one == other or (one.exists() and other.exists() and one.samefile(other))
