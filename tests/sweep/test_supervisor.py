"""Nothing that a launch started outlives it, whatever it did and however its job ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from sweep import processes
from sweep.checks import Context
from sweep.facts import Facts
from sweep.judge import judge
from sweep.report import Result, details, junit
from sweep.run import launch, warm
from sweep.run.supervised import Supervised
from tests.sweep.test_launch import run
from tests.sweep.waiting import until

# A daemon that no marker and no session gives away, and a trainer that leaves it.
DAEMON = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", {name!r}],
                  {{}})
    os._exit(0)
os.wait()
"""
STUBBORN = """\
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {name!r}],
                 start_new_session=True)
print("trains", {name!r}, flush=True)
time.sleep(600)
"""
JOB = """\
import sys
from pathlib import Path
from sweep.run import launch, warm
from tests.sweep.test_launch import run
run(Path(sys.argv[1]), [sys.executable, sys.argv[2]], 600.0)
"""


@pytest.fixture
def name() -> Iterator[str]:
    """In the command lines of what this test starts; what is left of that is killed."""
    name = f"left-{uuid.uuid4().hex}"
    yield name
    for pid in named(name):
        os.kill(pid, signal.SIGKILL)


def named(name: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if name in words and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def script(folder: Path, text: str, name: str) -> str:
    path = folder / "trainer.py"
    path.write_text(text.format(name=name))
    return str(path)


def gone(name: str) -> Callable[[], bool]:
    return lambda: not named(name)


def test_a_daemon_with_a_clean_environment_ends_with_its_launch(tmp_path: Path, name: str) -> None:
    facts = run(tmp_path, [sys.executable, script(tmp_path, DAEMON, name)])
    assert named(name) == []
    assert (facts.exit_code, facts.stopped) == (0, 1)
    assert name in facts.left_behind


def test_what_ends_by_itself_soon_after_its_launch_was_not_left(tmp_path: Path) -> None:
    helper = "import subprocess, sys; subprocess.Popen(['sleep', '0.2'], start_new_session=True)"
    facts = run(tmp_path, [sys.executable, "-c", helper])
    assert (facts.exit_code, facts.stopped, facts.left_behind) == (0, 0, "")


def test_what_was_killed_is_a_note_of_the_case(make_facts: Callable[..., Facts]) -> None:
    facts = make_facts(stopped=2, stopped_commands=["sleep 600", "sleep 600"])
    result = Result(judge(facts, Context()), Path("x"), "python -m sweep", facts)
    said = "train: left 2 processes running, which had to be killed: sleep 600"
    assert said in result.notes
    assert said in junit("s", [result])
    assert said in details("s", [result])
    at_its_limit = make_facts(stopped=2, timed_out=True)
    assert Result(judge(at_its_limit, Context()), Path("x"), "", at_its_limit).notes == [
        note for note in result.notes if note != said
    ]


@pytest.fixture
def job(tmp_path: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that launches a stubborn trainer, and is in a group of its own."""
    program = script(tmp_path, STUBBORN, name)
    started = subprocess.Popen(
        [sys.executable, "-c", JOB, str(tmp_path / "case"), program], start_new_session=True
    )
    until(lambda: named(name), "the trainer runs")
    yield started
    started.kill()
    started.wait()


@pytest.mark.slow
def test_a_stubborn_trainer_ends_with_a_job_whose_whole_group_was_killed(
    job: subprocess.Popen[bytes], name: str
) -> None:
    os.killpg(job.pid, signal.SIGKILL)
    until(gone(name), "everything is gone", seconds=20)


@pytest.mark.slow
def test_a_supervisor_hears_no_signal_that_ends_programs(
    job: subprocess.Popen[bytes], name: str
) -> None:
    (supervisor,) = psutil.Process(job.pid).children()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        supervisor.send_signal(number)
    time.sleep(0.5)
    assert named(name), "it still runs"
    assert os.getsid(supervisor.pid) not in (os.getsid(job.pid), os.getsid(named(name)[0]))
    job.kill()
    until(gone(name), "everything is gone", seconds=20)
    until(lambda: not psutil.pid_exists(supervisor.pid), "its supervisor has ended", seconds=20)


@pytest.mark.slow
def test_a_driver_that_clears_a_job_waits_until_what_has_no_marker_is_gone(
    tmp_path: Path, name: str
) -> None:
    marker = uuid.uuid4().hex
    program = script(tmp_path, DAEMON + "time.sleep(600)\n", name)
    started = subprocess.Popen(
        [sys.executable, "-c", JOB, str(tmp_path / "case"), program],
        env={**os.environ, processes.JOB_MARKER: marker},
    )
    until(lambda: named(name), "the daemon runs")
    processes.MarkedJob(marker).clear()
    assert named(name) == []
    assert started.wait() == -signal.SIGKILL


def supervised(tmp_path: Path, *argv: str, **env: str) -> tuple[Supervised, Path]:
    log = tmp_path / "log"
    with log.open("wb") as out:
        return Supervised(argv, {**os.environ, **env}, out), log


def test_a_program_is_as_if_nobody_stood_between(tmp_path: Path) -> None:
    shows = (
        "import os, resource",
        "print(os.environ['SWEEP_LAUNCH'], os.getsid(0) == os.getpid())",
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0], flush=True)",
        "os.execvp('ls', ['ls', '/proc/self/fd'])",
    )
    argv = [sys.executable, "-c", "\n".join(shows)]
    program, log = supervised(tmp_path, *argv, SWEEP_LAUNCH="m")
    assert program.wait() == 0
    program.end()
    assert log.read_text().split() == ["m", "True", "0", "0", "1", "2", "3"]  # 3 is ls's own
    assert program.stopped == []


def test_the_signal_that_killed_a_program_is_its_exit_code(tmp_path: Path) -> None:
    program, _ = supervised(tmp_path, "sh", "-c", "kill -9 $$")
    assert program.wait() == -signal.SIGKILL
    program.end()
    assert program.stopped == []


def test_a_program_that_cannot_be_executed_says_so(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text("no format that the system knows")
    path.chmod(0o755)
    program, log = supervised(tmp_path, str(path))
    assert program.wait() == 127
    program.end()
    assert "Exec format error" in log.read_text()


SERVER = """\
import ctypes, os, socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    connection, _ = listener.accept()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(36, 1)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)",
                                           {name!r}], {{}})
            os._exit(0)
        os.wait()
        connection.recv(1)
        os._exit(0)
    connection.close()
"""


@pytest.mark.slow
def test_a_daemon_of_a_warm_launch_ends_with_it_and_the_server_does_not(
    tmp_path: Path, name: str
) -> None:
    program = [sys.executable, script(tmp_path, SERVER, name)]
    server = warm.Server(program, launch.launch_variables("cpu", None), tmp_path / "log")
    try:
        asked = warm._connected(server.address)
        until(lambda: named(name), "the daemon runs")
        time.sleep(2.0)
        assert named(name), "it is not killed while its launch runs"
        asked.close()
        until(gone(name), "it is gone", seconds=20)
        assert server.pid is not None
        assert psutil.pid_exists(server.pid)
    finally:
        server.stop()
    assert not psutil.pid_exists(server.pid)


STARTS_A_SERVER = """\
import sys, time
from pathlib import Path
from sweep.run import launch, warm
server = warm.Server([sys.executable, sys.argv[1]], launch.launch_variables("cpu", None),
                     Path(sys.argv[2]))
asked = warm._connected(server.address)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_server_and_its_launches_end_with_a_driver_whose_group_was_killed(
    tmp_path: Path, name: str
) -> None:
    program = script(tmp_path, SERVER, name)
    command = [sys.executable, "-c", STARTS_A_SERVER, program, str(tmp_path / "log")]
    driver = subprocess.Popen(command, start_new_session=True)
    until(lambda: named(name), "the daemon of a launch runs")
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    until(gone(name), "everything is gone", seconds=20)
    until(lambda: not named(program), "the server as well", seconds=20)


def test_a_server_that_serves_somebody_else_for_ever_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "ANSWER_SECONDS", 0.5)
    program = [sys.executable, str(Path(__file__).with_name("forking.py")), "slow"]
    server = warm.Server(program, launch.launch_variables("cpu", None), tmp_path / "log")
    try:
        asked = warm.Forked(
            server.address, ["python", "-m", "torch.distributed.run"], {}, tmp_path / "launch.log"
        )
        until(lambda: asked.poll() is not None, "it gives up", seconds=10)
        assert asked.refused == "the process that forks warm ranks is silent for 0.5 s"
        assert "launch.mode=cold does without it" in (tmp_path / "launch.log").read_text()
    finally:
        server.stop()
