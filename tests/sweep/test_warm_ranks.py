"""The built-in trainer's server: its forked ranks are what torchrun's are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sweep import trainers
from sweep.case.labels import settings_of
from sweep.case.machine import Machine
from sweep.logs import compiler_log
from sweep.run import launch, warm
from tests.sweep.planning import composed
from tests.sweep.test_warm import run
from tests.sweep.waiting import until

pytestmark = pytest.mark.slow

GOES_WRONG = """
import faulthandler, os, signal, sys, time
print("hello from", os.environ["RANK"], flush=True)
if os.environ["RANK"] == "1":
    WRONG
time.sleep(600)
"""
SHOWS = """
import faulthandler, json, logging, os, sys, torch
shown = {"environ": dict(os.environ), "argv": sys.argv[1:], "threads": torch.get_num_threads(),
         "faulthandler": faulthandler.is_enabled(), "buffered": sys.stdout.line_buffering,
         "cuda": torch.cuda.is_initialized(), "name": __name__,
         "log": logging.getLogger("torch._dynamo.output_graph").getEffectiveLevel(),
         "breaks": torch._logging._internal.log_state.is_artifact_enabled("graph_breaks")}
open(sys.argv[1] + os.environ["RANK"], "w").write(json.dumps(shown))
"""
OF_ONE_LAUNCH = {"MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE", "SWEEP_LAUNCH"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[warm.Server]:
    log = tmp_path_factory.mktemp("server") / "server.log"
    program = [sys.executable, "-m", "sft.warm.server"]
    one = warm.Server(program, launch.launch_variables("cpu", None), log)
    yield one
    one.stop()


def left(server: warm.Server) -> list[psutil.Process]:
    return psutil.Process(server.pid).children(recursive=True)


@pytest.mark.parametrize(
    ("wrong", "failure", "said"),
    [
        ("sys.exit(42)", "exit code 42", "hello from 1"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "Signal 9 (SIGKILL) received", "hello from 1"),
        ("raise ValueError('I give up')", "ValueError: I give up", "in <module>"),
    ],
)
def test_the_rank_that_failed_first_is_named_with_what_it_said(
    server: warm.Server, tmp_path: Path, wrong: str, failure: str, said: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(GOES_WRONG.replace("WRONG", wrong))
    facts = run(tmp_path / "case", [str(program)], server.address)
    assert (facts.exit_code, facts.failed_rank) == (1, 1)
    assert failure in facts.failure
    assert said in facts.rank_tail
    assert (facts.stopped, left(server)) == (0, [])


def test_a_hang_is_ended_at_the_limit_with_the_stacks_of_every_rank(
    server: warm.Server, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(GOES_WRONG.replace("WRONG", "pass"))
    facts = run(tmp_path / "case", [str(program)], server.address, limit_seconds=8.0)
    assert facts.timed_out
    for rank in "01":
        log = next((tmp_path / "case" / "ranks").rglob(f"{rank}/stderr.log")).read_text()
        assert "most recent call first" in log
        assert "program.py" in log
    assert left(server) == []


def test_a_supervisor_that_is_killed_takes_its_ranks_along_and_not_the_server(
    server: warm.Server, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text(GOES_WRONG.replace("WRONG", "pass"))
    code = (
        "import sys; from pathlib import Path; from tests.sweep.test_warm import run\n"
        "run(Path(sys.argv[1]), [sys.argv[2]], sys.argv[3])"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "case"), str(program), server.address]
    )
    until(lambda: len(list((tmp_path / "case").rglob("stdout.log"))) == 2, "both ranks run")
    assert len(left(server)) == 3
    supervisor.kill()
    supervisor.wait()
    until(lambda: left(server) == [], "its ranks are gone")
    assert psutil.Process(server.pid).is_running()


def test_a_forked_rank_has_what_torchrun_gives_it(server: warm.Server, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SHOWS)
    shown = {}
    for mode, address in (("warm", server.address), ("cold", None)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ODD", "ä b")
            patch.setenv("TORCH_LOGS", compiler_log.log_variables({})["TORCH_LOGS"])
            facts = run(tmp_path / mode, [str(program), str(tmp_path / mode) + "-"], address)
        assert facts.exit_code == 0, facts.rank_tail + facts.log_tail
        ranks = [json.loads((tmp_path / f"{mode}-{rank}").read_text()) for rank in "01"]
        for rank in ranks:
            assert set(rank["environ"]) >= OF_ONE_LAUNCH
            rank["environ"] = {k: v for k, v in rank["environ"].items() if k not in OF_ONE_LAUNCH}
            rank["argv"] = []
        shown[mode] = ranks
    for forked, started in zip(shown["warm"], shown["cold"], strict=True):
        assert set(forked["environ"].items()) ^ set(started["environ"].items()) == set()
        assert forked == started
    assert shown["warm"][1]["environ"]["LOCAL_RANK"] == "1"
    assert shown["warm"][1]["breaks"]


def without_times(figures: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in figures.items() if not key.endswith(("seconds", "gib"))}
    return {
        key: without_times(value) if isinstance(value, dict) else value
        for key, value in kept.items()
    }


def test_losses_are_the_same_to_the_last_bit(server: warm.Server, tmp_path: Path) -> None:
    import tiny_models

    settings = settings_of(composed(["arch=qwen3_moe", "layout=fsdp2_ep2", "steps=2"]), Machine())
    trainer = trainers.of(settings)
    model = Path(tiny_models.ensure("qwen3_moe"))
    reported = []
    for mode, address in (("cold", None), ("warm", server.address)):
        directory = tmp_path / mode
        directory.mkdir()
        (one,) = trainer.launches(settings)
        command = trainer.command(settings, one, directory, model)
        watch = launch.Watch(lambda d=directory: trainer.metrics(settings, d), 300.0)
        env = compiler_log.log_variables(launch.launch_variables("cpu", None))
        facts = launch.run(one, command, directory, env, watch, address)
        assert facts.exit_code == 0, facts.rank_tail
        reported.append([without_times(step.model_dump()) for step in facts.metrics.steps])
    assert len(reported[0]) == 2
    assert reported[0] == reported[1]


def test_a_killed_sweep_leaves_no_server_and_no_rank(outputs: Path) -> None:
    argv = [sys.executable, "-m", "sweep", "-m", "arch=llama", "layout=cp2_ep2", "steps=1000",
            "feature.compile=false", f"outputs={outputs}"]  # fmt: skip
    sweep = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        trains = "*/*/launches/1_train/metrics.jsonl"
        until(lambda: any(outputs.glob(trains)), "the case trains", seconds=240)
        family = psutil.Process(sweep.pid).children(recursive=True)
        ranks = [
            one
            for one in family
            if "sft.warm.server" in one.cmdline()
            and not any("supervisor.py" in word for word in one.cmdline())
        ]
        assert len(ranks) == 4  # the server, the launcher, two ranks
    finally:
        sweep.kill()
        sweep.wait()
    _, alive = psutil.wait_procs(family, timeout=90)  # with the runs' end
    assert alive == []
