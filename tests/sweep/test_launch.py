from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from sweep import processes
from sweep.errors import Interrupted
from sweep.facts import LaunchFacts
from sweep.run import launch
from sweep.schema import MetricsConf
from sweep.trainers import readers
from sweep.trainers.base import Command, Launch

DUMMY = str(Path(__file__).with_name("dummy.py"))


def run(directory: Path, argv: list[str], limit: float = 30.0, **watch: object) -> LaunchFacts:
    directory = directory / "launches" / "1_train"
    directory.mkdir(parents=True)
    argv = [word.replace("OUT", str(directory)) for word in argv]
    observed = launch.Watch(
        metrics=lambda: readers.read(MetricsConf(), directory),
        limit_seconds=limit,
        **watch,  # type: ignore[arg-type]
    )
    env = launch.launch_variables("cpu", None)
    return launch.run(Launch("train", 1, 5), Command(argv), directory, env, observed)


def dummy(behaviour: str) -> list[str]:
    return [sys.executable, DUMMY, behaviour, "OUT", "5"]


@pytest.fixture
def there_before() -> set[psutil.Process]:
    """Servers that other tests in this process fork their ranks and commands from."""
    return set(psutil.Process().children(recursive=True))


def children(there_before: set[psutil.Process]) -> list[psutil.Process]:
    """What this test has started and left."""
    return [
        child
        for child in psutil.Process().children(recursive=True)
        if child not in there_before and child.status() != psutil.STATUS_ZOMBIE
    ]


def test_a_good_launch_has_its_steps_and_no_tails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = run(tmp_path, dummy("ok"), stream=True)
    assert facts.exit_code == 0
    assert [step.step for step in facts.metrics.steps] == [1, 2, 3, 4, 5]
    assert facts.first_step_seconds is not None
    assert facts.directory == "launches/1_train"
    assert (facts.stopped, facts.log_tail) == (0, "")
    assert "training as ok" in capsys.readouterr().out


@pytest.mark.filterwarnings("error")
def test_a_sign_that_comes_in_parts_is_streamed_whole_and_the_log_is_closed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slowly = "import sys, time\nfor byte in 'é'.encode(): sys.stdout.buffer.write(bytes([byte]));"
    slowly += " sys.stdout.flush(); time.sleep(0.3)"
    run(tmp_path, [sys.executable, "-c", slowly], stream=True)
    gc.collect()
    assert capsys.readouterr().out == "é"


def test_the_exit_code_and_the_end_of_the_log_are_kept(tmp_path: Path) -> None:
    facts = run(tmp_path, dummy("exit_42"))
    assert facts.exit_code == 42
    assert "out of cheese" in facts.log_tail


def test_a_killed_trainer_shows_its_signal(tmp_path: Path) -> None:
    assert run(tmp_path, dummy("killed")).exit_code == -signal.SIGKILL


def test_a_hang_is_ended_at_the_limit_with_its_stacks_and_all_its_processes(
    tmp_path: Path,
) -> None:
    before = time.monotonic()
    facts = run(tmp_path, dummy("hang"), limit=1.5)
    assert facts.timed_out
    assert time.monotonic() - before < 10
    assert "most recent call first" in facts.log_tail  # faulthandler's words
    assert "in misbehave" in facts.log_tail
    assert launch.end_leftovers(tmp_path / facts.directory) == 0  # the detached one is gone too


def test_what_a_good_trainer_leaves_running_is_ended(tmp_path: Path) -> None:
    facts = run(tmp_path, dummy("leftover"))
    assert (facts.exit_code, facts.stopped) == (0, 1)
    assert facts.left_behind.startswith("train: left 1 process running, which had to be killed: ")
    assert "time.sleep(600)" in facts.left_behind


def test_a_launch_whose_sweep_is_gone_is_ended(
    tmp_path: Path, there_before: set[psutil.Process]
) -> None:
    with pytest.raises(Interrupted, match="the sweep is gone"):
        run(tmp_path, dummy("hang"), orphaned=lambda: True)
    assert children(there_before) == []


def test_a_program_that_does_not_exist_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        run(tmp_path, ["no-such-program"])


def test_ranks_run_offline_on_one_thread_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    cpu = launch.launch_variables("cpu", None)
    assert (cpu["OMP_NUM_THREADS"], cpu["CUDA_VISIBLE_DEVICES"]) == ("1", "")
    assert cpu["HF_HUB_OFFLINE"] == "1"
    assert launch.launch_variables("cuda", "3")["CUDA_VISIBLE_DEVICES"] == "3"
    assert launch.launch_variables("cuda", None)["CUDA_VISIBLE_DEVICES"] == "2,3"


def test_what_a_dead_supervisor_left_is_found_by_its_marker() -> None:
    sleeper = subprocess.Popen(
        ["sleep", "600"], env={**os.environ, processes.MARKER: "m1"}, start_new_session=True
    )
    other = subprocess.Popen(["sleep", "600"], env={**os.environ, processes.MARKER: "m2"})
    try:
        assert processes.end_all("m1") == ["sleep 600"]
        assert sleeper.wait(timeout=5) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_zombie_is_not_alive() -> None:
    child = subprocess.Popen(["true"])
    born = processes.created(child.pid)
    deadline = time.monotonic() + 10
    while processes.is_alive(child.pid, born) and time.monotonic() < deadline:
        time.sleep(0.02)  # nobody waits for it, so it stays as a zombie
    assert not processes.is_alive(child.pid, born)
    assert child.wait() == 0


def test_a_process_number_used_again_is_another_process() -> None:
    born = processes.created(os.getpid())
    assert processes.is_alive(os.getpid(), born)
    assert not processes.is_alive(os.getpid(), born - 100)


@pytest.mark.slow
def test_launches_at_once_meet_at_ports_of_their_own(tmp_path: Path) -> None:
    program = tmp_path / "port.py"
    program.write_text("import os\nprint('PORT=' + os.environ['MASTER_PORT'], flush=True)\n")
    taken = socket.socket()
    with contextlib.suppress(OSError):  # then another process has torchrun's default port
        taken.bind(("127.0.0.1", 29500))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node", "2", str(program)]  # fmt: skip
    with taken, ThreadPoolExecutor() as pool:
        runs = [pool.submit(run, tmp_path / name, torchrun, 120.0) for name in ("one", "two")]
        assert [done.result().exit_code for done in runs] == [0, 0]
    logs = [
        (tmp_path / name / "launches/1_train/launcher.log").read_text() for name in ("one", "two")
    ]
    assert all("PORT=29500" not in log for log in logs)


@pytest.mark.slow
def test_torchrun_names_the_rank_that_failed_first(
    tmp_path: Path, there_before: set[psutil.Process]
) -> None:
    program = tmp_path / "ranks.py"
    program.write_text(
        "import os, signal, time\n"
        "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\n"
        "def main():\n"
        "    print('hello from', os.environ['RANK'], flush=True)\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise ValueError('rank one gives up')\n"
        "    time.sleep(600)\n"
        "main()\n"
    )
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node", "2", "--log-dir", "OUT/ranks", "--tee", "3"]  # fmt: skip
    facts = run(tmp_path, [*torchrun, str(program)], limit=120)
    assert facts.exit_code == 1
    assert facts.failed_rank == 1
    assert facts.failure == "ValueError: rank one gives up"
    assert "hello from 1" in facts.rank_tail
    assert children(there_before) == []


def test_ranks_are_not_those_of_a_torchrun_around_the_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    around = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT",
              "TORCHELASTIC_RUN_ID", "PET_NNODES")  # fmt: skip
    for name in around:
        monkeypatch.setenv(name, "8")
    monkeypatch.setenv("RANK_OF_MINE", "8")
    env = launch.launch_variables("cpu", None)
    assert not set(around) & set(env)
    assert env["RANK_OF_MINE"] == "8"
