"""Where results are recorded: at MLFLOW_TRACKING_URI, else in a SQLite file in `outputs`."""

from __future__ import annotations

import importlib
import os
import shlex
import socket
import sqlite3
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from filelock import FileLock

from sweep import commands
from sweep.errors import MachineryError, RequestError
from sweep.store import empty

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
LOCK_SECONDS = 240.0
LONGEST = 430  # SQLite's limit is 512 bytes, including what it and we append
DAMAGED = ("malformed", "not a database", "out-of-date database schema", "already exists",
           "no such table", "no such column", "Can't locate revision")  # fmt: skip
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}

# By default MLflow retries each call to a dead server seven times, for minutes. We never retry: a
# request that the server answered too late would create a run twice.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # it would get into our table
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "PGCONNECT_TIMEOUT": "10",
}


@dataclass(frozen=True)
class Location:
    """An MLflow store; `artifacts` is where new experiments keep files, None if at the server."""

    uri: str
    artifacts: str | None = None

    @classmethod
    def at(cls, outputs: Path) -> Location:
        """At MLFLOW_TRACKING_URI, else a SQLite file in the output folder; raises RequestError."""
        _check_home()
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        root = outputs.resolve()
        _check_text(root)
        files = (root / "artifacts").as_uri()
        if not uri:
            if {"%", "?"} & set(str(root)):
                raise RequestError(
                    f"outputs={outputs}: MLflow cannot address a file in it; choose a folder"
                    " without % and ? in its name, or a server (MLFLOW_TRACKING_URI)"
                )
            if len(os.fsencode(root)) > LONGEST:
                raise RequestError(
                    f"outputs=...{str(outputs)[-60:]}: the path is too long for SQLite;"
                    f" choose one of at most {LONGEST} bytes, or a server (MLFLOW_TRACKING_URI)"
                )
            return cls(f"{SQLITE}{root}/mlflow.db", files)
        try:
            scheme, _ = urlsplit(uri).scheme, urlsplit(uri).port
        except ValueError as error:
            raise RequestError(f"MLFLOW_TRACKING_URI is no address: {error}") from None
        if scheme in ("", "file") and "MLFLOW_ALLOW_FILE_STORE" not in os.environ:
            raise RequestError(
                f"MLFLOW_TRACKING_URI={uri}: MLflow no longer takes a folder;"
                " name a server (http://...) or a database (sqlite:///path.db)"
            )
        # A server says where its files are; a database would have them in the current folder.
        return cls(uri, None if scheme in ("http", "https") else files)

    @property
    def exists(self) -> bool:
        """False only for a SQLite file that is not there yet."""
        return self._file is None or self._file.is_file()

    @property
    def is_server(self) -> bool:
        """Whether the store is not a file, so that calls may wait for a network."""
        return self._file is None

    @property
    def shown(self) -> str:
        """The URI without user name and password, which must not get into files and messages."""
        parts = urlsplit(self.uri)
        if "@" not in parts.netloc:
            return self.uri  # putting it together again would lose slashes of sqlite:////path
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock of a SQLite store: it allows one writer, and two would break its tables."""
        if self._file is None:
            yield
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            yield

    def _reach_database(self) -> None:
        """Fail at once if a database is unreachable; MLflow would try for two minutes."""
        if self._file is not None:
            if self._file.is_file():
                with closing(sqlite3.connect(self._file)) as opened:
                    opened.execute("SELECT name FROM sqlite_master LIMIT 1")
            return
        parts = urlsplit(self.uri)
        port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
        if parts.scheme in ("http", "https") or not parts.hostname or port is None:
            return
        try:
            socket.create_connection((parts.hostname, port), timeout=10).close()
        except OSError as error:
            raise MachineryError(f"{self.shown} does not answer: {error}") from None

    @contextmanager
    def answering(self, what: str) -> Iterator[None]:
        """Turn whatever MLflow raises in the block into a one-line MachineryError."""
        try:
            yield
        except (MachineryError, RequestError):
            raise
        except Exception as error:
            raise MachineryError(
                f"MLflow ({self.shown}) cannot {what}: {self.said(error)}"
            ) from error

    def said(self, reason: object) -> str:
        """An error in one line, without user name and password.

        If the store's file may be damaged, it names the next step.
        """
        secret = urlsplit(self.uri).netloc.rpartition("@")[0]
        text = str(reason).replace(f"{secret}@", "") if secret else str(reason)
        line = " ".join(text.partition("[SQL:")[0].split())[:300]
        damaged = self._file is not None and any(word in text for word in DAMAGED)
        return f"{line}; if it stays so, {self._move_away()}" if damaged else line

    def _move_away(self) -> str:
        """What to do about a file that is of no use."""
        sync = commands.spelled("sweep.sync", [f"outputs={Path(self._file or '').parent}"])
        return f"move {self._file} away, and {sync} records what is on disk again"

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """`exclusive` and `answering` together."""
        with self.answering(what), self.exclusive():
            yield

    @cached_property
    def _lock(self) -> FileLock:
        return FileLock(f"{self._file}.lock", timeout=LOCK_SECONDS)

    @property
    def _file(self) -> Path | None:
        path = self.uri.removeprefix(SQLITE)
        return None if path == self.uri else Path(path)

    @staticmethod
    def set_environment() -> None:
        """Set what MLflow reads from the environment when it is imported, unless the user did."""
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)

    def import_mlflow(self) -> None:
        """Import what `client` needs, which takes seconds; touches no store."""
        import mlflow

        is_database = urlsplit(self.uri).scheme not in ("http", "https")
        name = "sqlalchemy_store" if is_database else "rest_store"
        importlib.import_module(f"{mlflow.__name__}.store.tracking.{name}")

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's client, with short time limits; importing MLflow takes seconds."""
        self.set_environment()
        self._reach_database()
        from mlflow import MlflowClient

        with self.exclusive():
            self._make_tables()
            client = MlflowClient(tracking_uri=self.uri)
            self._check_place(client)
            return client

    def has(self, run_id: str) -> bool:
        """Whether the store has the run, even a deleted one; raises MachineryError."""
        if not self.exists:
            return False
        with self.answering(f"look for run {run_id}"):
            from mlflow import MlflowException

            try:
                self.client.get_run(run_id)
            except MlflowException as error:
                if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                    return False
                raise
        return True

    def _check_place(self, client: MlflowClient) -> None:
        """MLflow keeps the full address of every file, so it finds none of a store that was moved.

        Raises MachineryError.
        """
        files = _path_of(self.artifacts or "")
        here = files.parent
        if self._file is None or self._file.parent != here:
            return
        for experiment in client.search_experiments():
            location = _path_of(experiment.artifact_location)
            made_in = location.parent
            if location.name != files.name or (made_in.exists() and made_in.samefile(here)):
                continue
            raise MachineryError(
                f"{self._file} was made in {made_in}, where MLflow looks for its files: move it"
                f" back, or link its folder (ln -s {shlex.join([str(here), str(made_in)])}), or"
                f" {self._move_away()}"
            )

    def _make_tables(self) -> None:
        """Create the SQLite file under a temporary name: MLflow cannot use a half-made one.

        That takes seconds, in which the process may be killed or the disk fill up; so the cache has
        a copy of an empty one.
        """
        if self._file is None or self._file.is_file():
            return
        for left in self._file.parent.glob(f".{self._file.name}.*"):
            left.unlink()
        for is_copy in (True, False):
            # A new name each time, since MLflow keeps connections to files that it has opened.
            made = self._file.with_name(f".{self._file.name}.{uuid.uuid4().hex}")
            try:
                made.touch()  # fails at once if not allowed; MLflow would try for two minutes
                if not is_copy or empty.fill(made):
                    _make_tables_in(made, is_copy)
                    made.replace(self._file)
                    return
            except Exception:
                if not is_copy:
                    raise
                empty.forget()
            finally:
                made.unlink(missing_ok=True)


def _make_tables_in(path: Path, is_copy: bool) -> None:
    """Let MLflow make its tables, or look at those of a copy; keep those that are new."""
    from mlflow import MlflowClient

    MlflowClient(tracking_uri=f"{SQLITE}{path}").search_experiments()
    if not is_copy:
        empty.keep(path)


def _path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _check_home() -> None:
    """Importing MLflow needs a home folder."""
    try:
        Path.home()
    except RuntimeError:  # a container's user without an entry in /etc/passwd
        raise RequestError("this user has no home folder: set HOME to any that exists") from None


def _check_text(root: Path) -> None:
    """Raise RequestError for a path that our UTF-8 files cannot hold."""
    try:
        str(root).encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"{str(root)!a}: not readable in this locale ({sys.getfilesystemencoding()}): set"
            " PYTHONUTF8=1, or name another folder with outputs=..."
        ) from None
