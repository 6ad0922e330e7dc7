"""Processes of a launch, which are known by a marker in their environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweep import processes

HANGS = "import sys, time\nprint('hangs', file=sys.stderr, flush=True)\ntime.sleep(600)"


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    """Marker, process and log of a rank that hangs."""
    marker, log = uuid.uuid4().hex, tmp_path / "stderr.log"
    env = {**os.environ, processes.MARKER: marker, "PYTHONFAULTHANDLER": "1"}
    with log.open("wb") as file:
        rank = subprocess.Popen([sys.executable, "-c", HANGS], env=env, stderr=file)
    while not log.read_text():
        assert rank.poll() is None
    yield marker, rank, log
    processes.end_all(marker)


def test_a_rank_that_hangs_writes_where_and_ends(
    hanging: tuple[str, subprocess.Popen[bytes], Path],
) -> None:
    marker, rank, log = hanging
    processes.dump_stacks(marker, launcher=0)
    assert rank.wait(timeout=10) == -signal.SIGABRT
    assert "most recent call first" in log.read_text()


def test_a_rank_that_was_asked_elsewhere_is_not_asked_twice(
    hanging: tuple[str, subprocess.Popen[bytes], Path],
) -> None:
    marker, rank, _ = hanging
    processes.dump_stacks(marker, launcher=0, wait=0.2, asked=True)
    assert rank.poll() is None
    processes.dump_stacks(marker, launcher=rank.pid, wait=5.0, asked=True)
    assert rank.wait(timeout=10) == -signal.SIGABRT, "the launcher is ours to ask"
