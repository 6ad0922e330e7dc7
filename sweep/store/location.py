"""Where results are kept: the server that MLFLOW_TRACKING_URI names, else a file in `outputs`."""

from __future__ import annotations

import os
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
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from sweep import commands
from sweep.errors import MachineryError, RequestError
from sweep.store import moved

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
LOCK_SECONDS = 240.0
LONGEST = 430  # SQLite's own limit is 512, with what it and we append
DAMAGED = ("malformed", "not a database", "out-of-date database schema", "already exists",
           "no such table", "no such column", "Can't locate revision")  # fmt: skip
MOVE_AWAY = "move {file} away, and {sync} records what is on disk again"
PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433}

# MLflow would retry a dead server for minutes, seven times a call, with every result behind it. No
# retry at all: a request that the server got and answered late would make a run twice.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # beside our table
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "PGCONNECT_TIMEOUT": "10",
}


@dataclass(frozen=True)
class Location:
    """An MLflow store; `artifacts` is where a new experiment keeps files, if not the server."""

    uri: str
    artifacts: str | None = None

    @classmethod
    def at(cls, outputs: Path) -> Location:
        """MLFLOW_TRACKING_URI, else a SQLite file in the output folder; raises RequestError."""
        _check_home()
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        root = outputs.resolve()
        _check_text(root)
        files = (root / "artifacts").as_uri()
        if not uri:
            if {"%", "?"} & set(str(root)):
                raise RequestError(
                    f"outputs={outputs}: no address of MLflow's can name a file under it; choose"
                    " a folder without % and ? in its name, or a server (MLFLOW_TRACKING_URI)"
                )
            if len(os.fsencode(root)) > LONGEST:
                raise RequestError(
                    f"outputs=...{str(outputs)[-60:]}: SQLite opens no file under a name as long;"
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
        """False only for a SQLite file that nobody has made yet."""
        return self._file is None or self._file.is_file()

    @property
    def is_server(self) -> bool:
        """Whether something else than this machine's files may keep us waiting."""
        return self._file is None

    @property
    def shown(self) -> str:
        """The URI without a name and password, which belong in no file and no message."""
        parts = urlsplit(self.uri)
        if "@" not in parts.netloc:
            return self.uri  # putting it together again would lose slashes of sqlite:////path
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """SQLite takes one writer at a time, and is ruined by several that make its tables."""
        if self._file is None:
            yield
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            yield

    def _reach_database(self) -> None:
        """MLflow would try ten times, for two minutes; a server has its own time limits."""
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
        """Whatever MLflow raises while it does `what` is a MachineryError in one line."""
        try:
            yield
        except (MachineryError, RequestError):
            raise
        except Exception as error:
            raise MachineryError(
                f"MLflow ({self.shown}) cannot {what}: {self.said(error)}"
            ) from error

    def said(self, reason: object) -> str:
        """A complaint in one line, without the name and password that MLflow puts into some.

        Where the file of the store may be damaged it says what to do.
        """
        secret = urlsplit(self.uri).netloc.rpartition("@")[0]
        text = str(reason).replace(f"{secret}@", "") if secret else str(reason)
        line = " ".join(text.partition("[SQL:")[0].split())[:300]
        damaged = self._file is not None and any(word in text for word in DAMAGED)
        if not damaged:
            return line
        sync = commands.spelled("sweep.sync", [f"outputs={Path(self._file or '').parent}"])
        return f"{line}; if it stays so, {MOVE_AWAY.format(file=self._file, sync=sync)}"

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """`exclusive` for all of `what`; a lock that nobody gives back is one line as well."""
        with self.answering(what), self.exclusive():
            yield

    @cached_property
    def _lock(self) -> FileLock:
        return FileLock(f"{self._file}.lock", timeout=LOCK_SECONDS)

    @property
    def _file(self) -> Path | None:
        path = self.uri.removeprefix(SQLITE)
        return None if path == self.uri else Path(path)

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's client, made to give up soon; importing MLflow takes seconds."""
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        self._reach_database()
        from mlflow import MlflowClient

        with self.exclusive():
            self._make_tables()
            self._check_place()
            return MlflowClient(tracking_uri=self.uri)

    def has(self, run_id: str) -> bool:
        """Whether the store still has the run, deleted or not; raises MachineryError."""
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

    def made_in(self) -> Path | None:
        """Where a store was made that was moved or copied here with its folder, if it was."""
        if self._file is None or self.artifacts is None:
            return None
        return moved.made_in(self._file, self.artifacts)

    def take_over(self) -> None:
        """Look for the files of such a store beside it from now on; raises MachineryError."""
        with self.writing("have its files looked for beside it"):
            if self._file is not None and self.artifacts is not None:
                moved.take_over(self._file, self.artifacts)

    def _check_place(self) -> None:
        if (place := self.made_in()) is not None:
            sync = commands.spelled("sweep.sync", [f"outputs={Path(self._file or '').parent}"])
            raise MachineryError(
                f"{self._file} was made in {place}, and its files are there: move it back, or"
                f" {sync} has them looked for beside it"
            )

    def _make_tables(self) -> None:
        """Under another name first: MLflow can do nothing with a file that was half made.

        A full disk leaves one, and so does being killed in the many seconds that it takes.
        """
        if self._file is None or self._file.is_file():
            return
        from mlflow import MlflowClient

        for left in self._file.parent.glob(f".{self._file.name}.*"):
            left.unlink()
        # A new name each time: MLflow keeps a connection to every file that it has opened.
        made = self._file.with_name(f".{self._file.name}.{uuid.uuid4().hex}")
        try:
            made.touch()  # where it cannot be, MLflow would try for two minutes
            MlflowClient(tracking_uri=f"{SQLITE}{made}").search_experiments()
            made.replace(self._file)
        finally:
            made.unlink(missing_ok=True)


def _check_home() -> None:
    """MLflow wants one when it is imported."""
    try:
        Path.home()
    except RuntimeError:  # a container's user without an entry in /etc/passwd
        raise RequestError("this user has no home folder: set HOME to any that exists") from None


def _check_text(root: Path) -> None:
    """No file of ours, which are all UTF-8, could name it."""
    try:
        str(root).encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"{str(root)!a}: not readable in this locale ({sys.getfilesystemencoding()}): set"
            " PYTHONUTF8=1, or name another folder with outputs=..."
        ) from None
