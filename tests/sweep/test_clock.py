"""A machine's clock that is set while a sweep runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sweep import clock, processes
from sweep.case import folder
from sweep.facts import Metrics
from sweep.run import launch
from sweep.trainers.base import Command, Launch


@pytest.fixture
def set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second look on it is an hour earlier."""
    real, looks = time.time, iter([0.0])
    monkeypatch.setattr(time, "time", lambda: real() - next(looks, 3600.0))


@pytest.mark.usefixtures("set_back")
def test_a_launch_takes_as_long_as_it_takes(tmp_path: Path) -> None:
    began = clock.now()
    facts = launch.run(
        Launch("train", 1, 1), Command([sys.executable, "-c", "pass"]), tmp_path, dict(os.environ),
        launch.Watch(metrics=Metrics, limit_seconds=60),
    )  # fmt: skip
    assert 0 < facts.seconds < 60
    assert began <= facts.started <= clock.now()


def plan_of(outputs: Path, name: str, started: float) -> None:
    (outputs / name).mkdir()
    (outputs / name / folder.PLAN).write_text(json.dumps({"started": started}))


def test_the_latest_sweep_is_the_one_that_began_last_though_the_clock_was_set_back(
    tmp_path: Path,
) -> None:
    now = time.time()
    plan_of(tmp_path, "before", now + 3600)
    plan_of(tmp_path, "of a broken clock", now + 10 * folder.A_DAY)
    (tmp_path / "after").mkdir()
    folder.write_plan(tmp_path / "after", [], "adhoc", {}, [])
    known = [one.name for one in folder.known(tmp_path)]
    assert known == ["before", "after", "of a broken clock"]


def test_a_process_is_known_again_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        with monkeypatch.context() as as_child:
            as_child.setattr(os, "getpid", lambda: child.pid)
            name = processes.this_process()
        pid, ticks, epoch = name.split(":")
        assert processes.is_there(name)
        assert processes.is_there(f"{pid}:{ticks}:{float(epoch) - 3600}")  # the clock was set
        assert not processes.is_there(f"{pid}:{int(ticks) + 1}:{epoch}")  # a later one
        assert processes.is_there(f"{pid}:{epoch}")  # as it was recorded before
        child.kill()
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        assert not processes.is_there(name)
    assert not processes.is_there(name)


def test_a_driver_of_this_host_is_told_dead_and_of_another_not() -> None:
    host, pid, ticks, epoch = folder.this_driver().split(":")
    assert not folder.is_dead(folder.this_driver())
    assert folder.is_dead(f"{host}:{pid}:{int(ticks) + 1}:{epoch}")
    assert folder.is_dead(f"{host}:{2**22 + 1}:1.0")
    assert not folder.is_dead(f"elsewhere:{pid}:1:1.0")
    assert not folder.is_dead("left to themselves")
