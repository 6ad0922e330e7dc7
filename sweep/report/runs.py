"""The MLflow run of a case, and the addresses of its pages in the MLflow UI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from pydantic import BaseModel, ValidationError

CURVE = "train/loss"  # a gradient norm on the same axis would flatten it
RECORDED = "recorded.json"  # in the folder of a case that is in MLflow


class Run(BaseModel):
    """A run of a tracking store, as recorded.json names it."""

    uri: str
    run_id: str
    experiment_id: str = ""

    @property
    def route(self) -> str:
        """The run's page relative to the UI's address; empty if the experiment is unknown."""
        if not self.experiment_id:
            return ""
        return f"#/experiments/{self.experiment_id}/runs/{self.run_id}"

    @property
    def address(self) -> str:
        """The address of the run's page; empty if the store is not a server."""
        return f"{_ui(self.uri)}{self.route}" if self.route and _ui(self.uri) else ""


def run_of(folder: Path, uri: str | None = None) -> Run | None:
    """The run of the case or sweep in `folder`; None if it is not recorded, or not at `uri`."""
    try:
        run = Run.model_validate_json((folder / RECORDED).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None
    return run if uri in (None, run.uri) else None


def overlay_address(runs: Sequence[Run]) -> str:
    """The UI page that shows these runs' curves in one chart; empty if the store is not a server.

    The axis is the step: over wall time, the default, runs would lie next to each other.
    """
    first = runs[0]
    if not all(run.address and run.uri == first.uri for run in runs):
        return ""
    parts = {
        "runs": [run.run_id for run in runs],
        "metric": CURVE,
        "experiments": sorted({run.experiment_id for run in runs}),
        "plot_metric_keys": [CURVE],
    }
    query = "&".join(f"{key}={_quoted(value)}" for key, value in parts.items())
    return f"{_ui(first.uri)}#/metric?{query}&x_axis=step"


def _quoted(value: object) -> str:
    return quote(json.dumps(value, separators=(",", ":")), safe=",")


def _ui(uri: str) -> str:
    """The UI's address without user name and password, which must not get into a report."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/") + "/", "", ""))
