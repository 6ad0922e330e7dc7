"""What every test runs under: no network, no telemetry, one thread a process; an empty store."""

from __future__ import annotations

import gc
import os
from collections.abc import Set
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
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


# The files whose slow tests take longest, the longest first: the other worker has the rest.
LONGEST = ("packaging/test_readme.py", "sweep/test_slurm.py", "sweep/test_fault_runs.py",
           "sweep/report/test_layouts.py", "oracle/test_agreement.py", "sweep/test_examples.py",
           "sweep/test_interruption.py", "sweep/test_servers.py", "sweep/test_sweep.py",
           "sft/test_meshes.py", "sweep/test_stress.py")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What fails fast fails first: files without slow tests, then the others, the longest first.

    A file stays together, since its tests share fixtures: one worker has them all (`--dist
    loadfile`; groups of pytest-xdist 3.8 are ignored under pytest 9.2, which keeps ids elsewhere).
    """
    slow = {_file(item) for item in items if _is_slow(item)}
    order = {file: number for number, file in enumerate(dict.fromkeys(map(_file, items)))}
    items.sort(key=lambda item: (*_turn(_file(item), slow), order[_file(item)], _is_slow(item)))


def pytest_collection_finish() -> None:
    """What is imported by now stays: to look through it for garbage takes a fifth of the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000)


def _turn(file: str, slow: Set[str]) -> tuple[bool, int]:
    is_long = file in slow and file in LONGEST
    return file in slow, LONGEST.index(file) if is_long else len(LONGEST)


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _file(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).as_posix()


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite store with its tables made."""
    from sweep.store import Location

    folder = tmp_path_factory.mktemp("store")
    _ = Location.at(folder).client
    return folder / "mlflow.db"
