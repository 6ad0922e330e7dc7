"""Where results are kept: the server that MLFLOW_TRACKING_URI names, else a file in `outputs`."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse, urlsplit, urlunsplit

from filelock import FileLock

from sweep.errors import MachineryError, RequestError

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"
LOCK_SECONDS = 240.0
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
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            root = outputs.resolve()
            return cls(f"{SQLITE}{root}/mlflow.db", (root / "artifacts").as_uri())
        if urlparse(uri).scheme in ("", "file") and "MLFLOW_ALLOW_FILE_STORE" not in os.environ:
            raise RequestError(
                f"MLFLOW_TRACKING_URI={uri}: MLflow no longer takes a folder;"
                " name a server (http://...) or a database (sqlite:///path.db)"
            )
        return cls(uri)

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
        """A complaint in one line, without the name and password that MLflow puts into some."""
        secret = urlsplit(self.uri).netloc.rpartition("@")[0]
        text = str(reason).replace(f"{secret}@", "") if secret else str(reason)
        return " ".join(text.split())[:300]

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
            return MlflowClient(tracking_uri=self.uri)  # makes the tables
