"""What every test runs under: no network, no telemetry, one thread a process; an empty store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}

# Two busy cores: what a test takes says nothing, and CI must finish.
settings.register_profile("here", deadline=None, max_examples=60)
settings.load_profile("here")

for key, value in QUIET.items():  # before anything imports a library that reads it
    os.environ.setdefault(key, value)
os.environ.pop("MLFLOW_TRACKING_URI", None)  # a test never writes to the developer's server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What fails fast fails first."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite store with its tables made."""
    from sweep.store import Location

    folder = tmp_path_factory.mktemp("store")
    _ = Location.at(folder).client
    return folder / "mlflow.db"
