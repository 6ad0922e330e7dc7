from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.errors import MachineryError, RequestError
from sweep.facts import Facts
from sweep.store import Location, Reader
from tests.sweep.recording import judge_again, record


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://me:secret@mlflow.example:5000/base", "https://mlflow.example:5000/base"),
        ("postgresql://me:secret@db/mlflow", "postgresql://db/mlflow"),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("sqlite:////data/me@home/mlflow.db", "sqlite:////data/me@home/mlflow.db"),
        ("sqlite:///mlflow.db", "sqlite:///mlflow.db"),
    ],
)
def test_a_store_is_named_without_a_password_and_otherwise_as_it_is(uri: str, shown: str) -> None:
    assert Location(uri).shown == shown


@pytest.mark.parametrize("name", ["50%25", "what?", "%"])
def test_a_folder_that_no_address_can_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="choose a folder without % and"):
        Location.at(tmp_path / name)


def test_a_folder_whose_name_sqlite_cannot_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="choose one of at most"):
        Location.at(tmp_path / "/".join(["x" * 200] * 3))


@given(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=40))
def test_any_other_folder_is_named_by_the_address(name: str) -> None:
    from sqlalchemy.engine import make_url

    root = (Path("/results") / name).resolve()
    try:
        location = Location.at(root)
    except RequestError:
        return
    assert make_url(location.uri).database == f"{root}/mlflow.db"


def test_tables_that_were_made_halfway_are_made_again(
    tmp_path: Path, empty_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("SWEEP_CACHE", str(tmp_path.parent / "cache"))  # without a copy of tables

    def dies(tracking_uri: str) -> None:
        Path(tracking_uri.removeprefix("sqlite:///")).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(mlflow, "MlflowClient", dies)
    with pytest.raises(OSError, match="No space"):
        _ = Location.at(tmp_path).client
    assert not (tmp_path / "mlflow.db").exists()

    class Maker:
        def __init__(self, tracking_uri: str) -> None:
            self.file = Path(tracking_uri.removeprefix("sqlite:///"))

        def search_experiments(self) -> list[object]:
            self.file.write_bytes(empty_store.read_bytes())
            return []

    monkeypatch.setattr(mlflow, "MlflowClient", Maker)
    _ = Location.at(tmp_path).client
    assert (tmp_path / "mlflow.db").read_bytes() == empty_store.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"mlflow.db", "mlflow.db.lock"}


def test_a_damaged_store_is_told_at_once_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("not a database, by far" * 100)
    began = time.monotonic()
    with pytest.raises(MachineryError, match=r"not a database; if it stays so, move .*sync"):
        Reader.at(tmp_path).find("latest")
    assert time.monotonic() - began < 20


def test_a_store_of_another_version_is_told_with_what_to_do(outputs: Path) -> None:
    import sqlite3

    with sqlite3.connect(outputs / "mlflow.db") as store:
        store.execute("UPDATE alembic_version SET version_num = 'bd07f7e963c5'")
    with pytest.raises(MachineryError, match=r"out-of-date database schema.* move "):
        Reader.at(outputs).find("latest")


def test_a_store_that_was_moved_is_told_with_where_it_was_made(outputs: Path) -> None:
    client = Location.at(outputs).client
    client.create_experiment("adhoc", Location.at(outputs).artifacts)
    moved = outputs.rename(outputs.with_name("else where"))
    with pytest.raises(MachineryError, match=f"made in {outputs}, .*ln -s '{moved}' {outputs}"):
        Reader.at(moved).find("latest")
    outputs.symlink_to(moved)  # the same place under its old name
    with pytest.raises(RequestError, match="there is none yet"):
        Reader.at(moved).find("latest")


def test_the_files_of_a_database_are_in_the_output_folder_and_nowhere_else(
    outputs: Path, tmp_path: Path, make_facts: Callable[..., Facts],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{outputs}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "mine", make_facts())
    assert {path.name for path in tmp_path.iterdir()} == {"outputs", "mine"}
    assert len(list((tmp_path / "mine" / "artifacts").glob("*/artifacts/facts.json"))) == 1
    assert judge_again(tmp_path / "elsewhere") == 0


@pytest.mark.parametrize("uri", ["http://[::1", "http://me:secret@host:port"])
def test_an_address_that_is_none_is_a_wrong_request(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(RequestError, match="MLFLOW_TRACKING_URI is no address") as refused:
        Location.at(tmp_path)
    assert "secret" not in str(refused.value)


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="set PYTHONUTF8=1"):
        Location.at(tmp_path / os.fsdecode(b"\xff\xfe"))


def test_a_user_without_a_home_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(RequestError, match="set HOME"):
        Location.at(tmp_path)
