"""The copy of an empty store that spares a new one the seconds in which MLflow makes its tables."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.facts import Facts
from sweep.store import Location, Writer, empty
from tests.sweep.recording import SWEEP, record, statuses


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tables(path: Path) -> list[str]:
    with sqlite3.connect(path) as store:
        return sorted(row[0] for row in store.execute("SELECT sql FROM sqlite_master WHERE sql"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files in which MLflow makes tables."""
    from mlflow.store.db import utils

    files: list[str] = []
    make = utils._initialize_tables

    def noted(engine: object) -> None:
        files.append(str(engine.url))  # type: ignore[attr-defined]
        make(engine)

    monkeypatch.setattr("mlflow.store.tracking.sqlalchemy_store._initialize_tables", noted,
                        raising=False)  # fmt: skip
    monkeypatch.setattr(utils, "_initialize_tables", noted)
    return files


@pytest.mark.slow
def test_tables_are_made_once_and_a_second_store_is_a_copy_that_records_as_well(
    tmp_path: Path, made: list[str], make_facts: Callable[..., Facts],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (tmp_path / "elsewhere").mkdir()
    for name in ("first", "second"):
        monkeypatch.chdir(tmp_path / "elsewhere" if name == "second" else tmp_path)
        record(tmp_path / name, make_facts())
    assert len(made) == 1
    assert tables(tmp_path / "first" / "mlflow.db") == tables(tmp_path / "second" / "mlflow.db")
    assert statuses(tmp_path / "first") == statuses(tmp_path / "second")
    names = {path.name for path in (tmp_path / "second").iterdir()}
    assert not [name for name in names if name.startswith(".")]
    with sqlite3.connect(tmp_path / "second" / "mlflow.db") as store:
        addresses = [row[0] for row in store.execute("SELECT artifact_location FROM experiments")]
    assert not [address for address in addresses if f"{tmp_path}/mlruns" in address]


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"not a database, by far" * 100, "of another version"])
def test_a_copy_that_is_of_no_use_is_made_again(
    content: bytes | str, tmp_path: Path, empty_store: Path
) -> None:
    kept = empty.kept()
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content if isinstance(content, bytes) else empty_store.read_bytes())
    if isinstance(content, str):
        with sqlite3.connect(kept) as store:
            store.execute("UPDATE alembic_version SET version_num = 'bd07f7e963c5'")
    assert [one.name for one in Location.at(tmp_path / "outputs").client.search_experiments()]
    assert tables(kept) == tables(empty_store)


def test_where_nothing_can_be_kept_stores_are_made_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path / "file" / "cache"))
    assert not empty.fill(tmp_path / "mlflow.db")
    empty.keep(tmp_path / "file")
    empty.forget()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_writer_imports_mlflow_in_a_thread_before_there_is_anything_to_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", raising=False)
    imported: list[tuple[str, str | None]] = []
    over = threading.Event()

    def note(_self: Location) -> None:
        variable = os.environ.get("MLFLOW_HTTP_REQUEST_MAX_RETRIES")
        imported.append((threading.current_thread().name, variable))
        over.set()
        raise ImportError("which the first record meets again")

    monkeypatch.setattr(Location, "import_mlflow", note)
    writer = Writer(Location.at(tmp_path / "outputs"), tmp_path / "outputs" / SWEEP)
    writer.prepare()
    writer.prepare()
    assert over.wait(10)
    assert imported == [("mlflow-import", "0")]
    assert not writer.has_begun
    assert not (tmp_path / "outputs").exists()  # neither a store nor its lock


@pytest.mark.slow
@pytest.mark.parametrize("uri", ["sqlite:///{}/mlflow.db", "http://127.0.0.1:1"])
def test_what_it_imports_is_what_the_client_uses(uri: str, tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys; from sweep.store import Location;"
        f"location = Location({uri.format(tmp_path)!r}); location.import_mlflow();"
        "before = set(sys.modules); _ = location.client;"
        "late = {name for name in set(sys.modules) - before if name.startswith('mlflow.store')};"
        "print(len(late), sorted(late))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    late = int(done.stdout.split()[0])
    assert late <= 6, done.stdout + done.stderr
