"""Where results are kept: the server that MLFLOW_TRACKING_URI names, else a file in `outputs`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from sweep.errors import RequestError

if TYPE_CHECKING:
    from mlflow import MlflowClient

SQLITE = "sqlite:///"

# MLflow would retry a dead server for minutes, seven times a call, with every result behind it. No
# retry at all: a request that the server got and answered late would make a run twice.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_DISABLE_TELEMETRY": "true",
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
    def _file(self) -> Path | None:
        path = self.uri.removeprefix(SQLITE)
        return None if path == self.uri else Path(path)

    @cached_property
    def client(self) -> MlflowClient:
        """MLflow's client, made to give up soon; importing MLflow takes seconds."""
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.uri)
