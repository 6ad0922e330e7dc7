"""Ranks forked from a process that has imported what they need."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep import processes
from sweep.case.machine import Machine
from sweep.errors import Interrupted, MachineryError
from sweep.facts import Facts, LaunchFacts, Metrics
from sweep.plan import plan_one
from sweep.run import job, launch, warm
from sweep.trainers.base import Command, Launch
from tests.sweep.planning import composed

FORKING = [sys.executable, str(Path(__file__).with_name("forking.py"))]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[[str], warm.Server]]:
    """A function that starts a server without torch, which goes wrong as it is told."""
    started: list[warm.Server] = []

    def start(behaviour: str) -> warm.Server:
        program = [*FORKING, behaviour]
        started.append(warm.Server(program, os.environ, tmp_path / "server.log"))
        return started[-1]

    yield start
    for one in started:
        one.stop()


def run(directory: Path, argv: list[str], address: str | None, **watch: Any) -> LaunchFacts:
    directory.mkdir(parents=True)
    argv = [*TORCHRUN, "--log-dir", str(directory / "ranks"), "--tee", "3", *argv]
    observed = launch.Watch(Metrics, **{"limit_seconds": 300.0, **watch})
    env = launch.launch_variables("cpu", None)
    return launch.run(Launch("train", 1, 5), Command(argv), directory, env, observed, address)


def test_the_exit_code_comes_from_the_server_however_its_words_are_split(
    server: Callable[[str], warm.Server], tmp_path: Path
) -> None:
    facts = run(tmp_path / "case", ["x.py"], server("good").address)
    assert (facts.exit_code, facts.cpu_seconds, facts.mode) == (3, 0.5, "warm")
    assert "asked for ['--standalone', '--nproc-per-node', '2'" in facts.log_tail


@pytest.mark.parametrize(
    ("behaviour", "code", "said"),
    [
        ("refuses", 1, "no rank can be forked: CUDA; launch.mode=cold does without it"),
        ("dies", -9, "the process that forks warm ranks has ended; launch.mode=cold"),
        ("broken", -9, "the process that forks warm ranks has ended; launch.mode=cold"),
    ],
)
def test_a_server_that_cannot_fork_or_dies_fails_the_launch_in_one_line(
    server: Callable[[str], warm.Server], tmp_path: Path, behaviour: str, code: int, said: str
) -> None:
    facts = run(tmp_path / "case", ["x.py"], server(behaviour).address)
    assert facts.exit_code == code
    assert bool(facts.refused) == (behaviour != "dies")  # it had not started
    assert facts.log_tail.splitlines()[-1].startswith(said)


def test_a_launch_that_no_server_takes_ends_at_its_limit(
    server: Callable[[str], warm.Server], tmp_path: Path
) -> None:
    facts = run(tmp_path / "case", ["x.py"], server("slow").address, limit_seconds=0.5)
    assert facts.timed_out
    assert facts.exit_code == -signal.SIGKILL


def test_a_launch_whose_sweep_is_gone_is_given_up(
    server: Callable[[str], warm.Server], tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        run(tmp_path / "case", ["x.py"], server("slow").address, orphaned=lambda: True)


def test_only_what_torchrun_starts_can_be_forked(
    server: Callable[[str], warm.Server], tmp_path: Path
) -> None:
    with pytest.raises(MachineryError, match="not of mine"):
        warm.Forked(server("good").address, ["mine", "-m", "x"], {}, tmp_path / "log")


def test_a_job_finds_the_server_of_its_sweep_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [*FORKING, "good"]
    sweeps = [warm.Servers([program, program], os.environ, tmp_path / name) for name in "ab"]
    try:
        found = []
        for one in sweeps:
            monkeypatch.setenv(warm.SERVERS, one.addresses()[warm.SERVERS])
            with warm.serving(program, os.environ, tmp_path / "own") as address:
                found.append(address)
            assert json.loads(os.environ[warm.SERVERS]) == {json.dumps(program): address}
        assert found[0] != found[1]
        assert not (tmp_path / "own").exists()
    finally:
        for one in sweeps:
            one.stop()


def test_a_job_whose_sweep_has_lost_its_server_starts_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [*FORKING, "good"]
    sweep = warm.Servers([program], os.environ, tmp_path / "log")
    monkeypatch.setenv(warm.SERVERS, sweep.addresses()[warm.SERVERS])
    sweep.stop()
    with warm.serving(program, os.environ, tmp_path / "own") as address:
        assert run(tmp_path / "case", ["x.py"], address).exit_code == 3
    with pytest.raises(ConnectionRefusedError):  # it has ended with the context
        warm.Forked(address, TORCHRUN, {}, tmp_path / "log2")


def test_a_case_with_an_environment_of_its_own_has_a_server_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = [*FORKING, "good"]
    sweep = warm.Servers([program], os.environ, tmp_path / "log")
    monkeypatch.setenv(warm.SERVERS, sweep.addresses()[warm.SERVERS])
    with warm.serving(program, os.environ, tmp_path / "own", shared=False) as address:
        assert address not in os.environ[warm.SERVERS]
    sweep.stop()


def test_another_users_server_is_not_asked(
    server: Callable[[str], warm.Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server("good").address
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(PermissionError):
        warm.Forked(address, TORCHRUN, {}, tmp_path / "log")


def test_a_server_ends_when_whoever_started_it_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys, time, pathlib; from sweep.run import warm\n"
        f"s = warm.Server({[*FORKING, 'slow']!r}, os.environ, pathlib.Path(sys.argv[1]))\n"
        "print(s.pid, flush=True); time.sleep(600)\n"
    )
    driver = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert driver.stdout is not None
    forking = psutil.Process(int(driver.stdout.readline()))
    while forking.cmdline()[:2] != FORKING:  # before that it is not yet bound to its parent
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    psutil.wait_procs([forking], timeout=10)
    assert not processes.is_alive(forking.pid, forking.create_time())


def test_a_trainer_that_starts_cold_only_is_unavailable_warm() -> None:
    overrides = ["arch=llama", "layout=single", "trainer=command", "trainer.argv=[x]"]
    cold = plan_one(overrides, composed(overrides), Machine())
    assert cold.unavailable is None
    assert warm.program_of(cold.settings) is None
    overrides += ["launch.mode=warm"]
    one = plan_one(overrides, composed(overrides), Machine())
    assert one.unavailable is not None
    assert "launch.mode=warm" in one.unavailable


@pytest.mark.parametrize(("mode", "forked"), [(None, True), ("warm", True), ("cold", False)])
def test_the_built_in_trainer_is_warm_unless_told_otherwise(mode: str | None, forked: bool) -> None:
    overrides = ["arch=llama", "layout=cp4_ep4", *([f"launch.mode={mode}"] if mode else [])]
    one = plan_one(overrides, composed(overrides), Machine())
    assert (warm.program_of(one.settings) is not None) == forked


@pytest.mark.parametrize(("mode", "tries"), [(None, ["server", None]), ("warm", ["server"])])
def test_what_cannot_be_forked_starts_cold_unless_warm_was_asked_for(
    mode: str | None, tries: list[str | None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    make_facts: Callable[..., Facts],
) -> None:  # fmt: skip
    overrides = ["arch=llama", "layout=single", *([f"launch.mode={mode}"] if mode else [])]
    settings = plan_one(overrides, composed(overrides), Machine()).settings
    tried: list[str | None] = []

    def run(*arguments: Any) -> LaunchFacts:
        server = arguments[5] if len(arguments) > 5 else None
        tried.append(server)
        facts = make_facts(exit_code=0, refused="CUDA" if server else "")
        return facts.launches[0]

    monkeypatch.setattr(launch, "run", run)
    one, command = Launch("train", 1, 5), Command(["x"])
    done = job.CaseLaunches(settings, tmp_path).run(one, command, tmp_path, "server")
    assert tried == tries
    assert done.refused == "CUDA"  # whoever wonders why it took so long finds it
