"""A sweep that is told to stop, or killed, at any moment; and going on with it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.sweep.commands import DUMMY_TRAINER, ROOT, TRAINER, processes_of, sweep
from tests.sweep.recording import statuses
from tests.sweep.waiting import until

ARCHS = {"llama": "ok", "qwen3": "hang", "qwen3_moe": "exit_42"}


def behaviours(**changed: str) -> str:
    """What each arch stands for, as dummy.py reads it."""
    return json.dumps({**ARCHS, **changed})


def finished(folder: Path) -> dict[str, str]:
    """Arch -> verdict of the cases with a result."""
    return {
        path.parent.name.partition("-")[0]: json.loads(path.read_text())["verdict"]
        for path in folder.glob("*/findings.json")
    }


CASES = (f"arch={','.join(ARCHS)}", "layout=cp4_ep4", *DUMMY_TRAINER,
         TRAINER.replace("{behaviour}", "{arch}"))  # fmt: skip


def start(outputs: Path, *arguments: str, **changed: str) -> subprocess.Popen[str]:
    # a shell starts what runs in the background with SIGINT ignored, and so these tests
    return subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "sweep", "-m", f"outputs={outputs}",
         *arguments],
        env={**os.environ, "COLUMNS": "80", "BEHAVIOURS": behaviours(**changed)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def stop_in_the_second_case(outputs: Path, stop: signal.Signals) -> tuple[int, str]:
    started = start(outputs, *CASES)
    lines = "*/qwen3-*/launches/1_train/metrics.jsonl"
    until(lambda: list(outputs.glob(lines)), "the second case trains", seconds=120)
    recorded = "*/llama-*/recorded.json"
    until(lambda: list(outputs.glob(recorded)), "the first is in MLflow", seconds=120)
    if stop is signal.SIGINT:  # a terminal's Ctrl-C reaches the whole process group
        os.killpg(started.pid, stop)
    else:
        started.send_signal(stop)
    said, _ = started.communicate(timeout=90)
    return started.returncode, said


def left_after(outputs: Path, seconds: float = 15) -> list[str]:
    """What still runs when orphans have had time to notice."""
    deadline = time.monotonic() + seconds
    while (left := processes_of(outputs)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def go_on(outputs: Path, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    return sweep(
        "-m", f"outputs={outputs}", *arguments, seconds=400, BEHAVIOURS=behaviours(**changed)
    )


@pytest.mark.slow
def test_sigterm_loses_no_finished_case_and_the_sweep_goes_on_from_there(outputs: Path) -> None:
    code, said = stop_in_the_second_case(outputs, signal.SIGTERM)
    assert code == 130
    assert left_after(outputs, seconds=1) == []
    (folder,) = [path.parent for path in outputs.glob("*/sweep.json")]
    assert finished(folder) == {"llama": "passed"}
    assert "2 of 3 cases have no result" in said
    assert f"resume_sweep={folder.name}" in said
    assert statuses(outputs) == [("case", "FINISHED"), ("case", "KILLED"), ("sweep", "KILLED")]

    facts_before = (next(folder.glob("llama-*")) / "facts.json").read_bytes()
    done = go_on(outputs, "resume_sweep=latest", qwen3="ok")
    assert done.returncode == 1, done.stderr
    assert "llama-cp4_ep1-base running" not in done.stdout
    assert finished(folder) == {"llama": "passed", "qwen3": "passed", "qwen3_moe": "crashed"}
    assert (next(folder.glob("llama-*")) / "facts.json").read_bytes() == facts_before
    assert "2 passed, 1 crashed" in (folder / "summary.md").read_text()
    assert statuses(outputs) == [
        ("case", "FAILED"),
        ("case", "FINISHED"),
        ("case", "FINISHED"),
        ("case", "KILLED"),
        ("sweep", "FAILED"),
    ]

    done = go_on(outputs, "rerun=failed", qwen3_moe="ok")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("running\n") == 1
    assert "3 passed" in (folder / "summary.md").read_text()
    assert list(folder.glob(".earlier/qwen3_moe-*/1/facts.json"))  # the failure is kept
    assert json.loads((folder / "sweep.json").read_text())["cases"] == [
        "llama-cp4_ep1-base",
        "qwen3-cp4_ep1-base",
        "qwen3_moe-cp4_ep4-base",
    ]


@pytest.mark.slow
def test_ctrl_c_ends_the_sweep_in_order_and_without_a_traceback(outputs: Path) -> None:
    code, said = stop_in_the_second_case(outputs, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said
    assert "2 of 3 cases have no result" in said
    assert left_after(outputs, seconds=1) == []
    (facts,) = outputs.glob("*/qwen3-*/facts.json")
    assert json.loads(facts.read_text())["interrupted"]


def test_ctrl_c_while_the_sweep_is_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "hydra.py").write_text("raise KeyboardInterrupt\n")
    done = sweep("arch=llama", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert (done.returncode, done.stderr) == (130, "sweep: interrupted\n")


@pytest.mark.slow
def test_a_killed_sweep_leaves_no_process_and_no_run_that_seems_to_go_on(outputs: Path) -> None:
    code, _ = stop_in_the_second_case(outputs, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert left_after(outputs, seconds=60) == []  # what is left ends the runs, and then itself
    assert statuses(outputs) == [("case", "FINISHED"), ("sweep", "KILLED")]
    (folder,) = [path.parent for path in outputs.glob("*/sweep.json")]
    assert finished(folder) == {"llama": "passed"}
    done = go_on(outputs, "resume_sweep=latest", qwen3="ok", qwen3_moe="ok")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in (folder / "summary.md").read_text()
    assert "RUNNING" not in {status for _, status in statuses(outputs)}
    assert [kind for kind, _ in statuses(outputs)].count("case") == 3  # each recorded once


@pytest.mark.slow
def test_a_sweep_killed_at_any_moment_again_and_again_ends_with_every_result(outputs: Path) -> None:
    """Three times; SWEEP_KILLS=20 tries more moments."""
    kills = os.environ.get("SWEEP_KILLS", "3")
    dice = random.Random(kills)

    def words() -> list[str]:
        return ["resume_sweep=latest"] if list(outputs.glob("*/sweep.json")) else [*CASES]

    for _ in range(int(kills)):
        started = start(outputs, *words(), qwen3="leftover")
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(dice.uniform(0.5, 9))
        started.kill()
        started.communicate()
        assert left_after(outputs, seconds=90) == []  # what ends the runs imports MLflow first
    done = go_on(outputs, *words(), qwen3="leftover")
    assert done.returncode == 1, done.stdout + done.stderr
    (folder,) = [path.parent for path in outputs.glob("*/sweep.json")]
    assert finished(folder) == {"llama": "passed", "qwen3": "passed", "qwen3_moe": "crashed"}
    assert "2 passed, 1 crashed" in (folder / "summary.md").read_text()
    ended = [one for one in statuses(outputs) if one[1] != "KILLED"]
    assert ended == [
        ("case", "FAILED"),
        ("case", "FINISHED"),
        ("case", "FINISHED"),
        ("sweep", "FAILED"),
    ]


def test_a_sweep_that_is_not_there_is_an_error_with_the_choices(outputs: Path) -> None:
    done = go_on(outputs, "resume_sweep=20200101-000000")
    assert done.returncode == 2
    assert "no sweep 20200101-000000" in done.stderr
    assert "there is none yet" in done.stderr
