"""Every command of README.md, typed one after another in a copy of the tree, as a newcomer does.

A command that trains for long is narrowed by what is typed after it (`TINY`); otherwise it is run
as it is printed. One that is not in `TINY`, or is no longer in README.md, fails.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sysconfig
import time
import urllib.request
import venv
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.sweep.commands import console_script
from tests.sweep.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
CLEAN = "gpt_oss-cp2_ep2-none"
FAULT = f"{CLEAN}-fault_cp_sinks_dropped_1"


@dataclass(frozen=True)
class Tiny:
    """What is typed after a command to keep it short, how it ends and what it shows (a regex)."""

    added: str = ""
    code: int = 0
    shows: str = ""


@dataclass(frozen=True)
class Journey:
    """Where the commands were typed; each with what is wrong with what it did."""

    tree: Path
    done: list[tuple[str, str | None]]


OF_ONE_ARCH = "9 cases, 11-13 launches"
TINY = {
    "make sweep": Tiny("", 0, "running, step 5 of 5(?s:.*)2 passed"),  # the main job, as it is
    "make test": Tiny(
        "PYTEST_ARGS='-k is_a_target tests/packaging/test_commands.py'", 0, " passed"
    ),
    "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make sweep": Tiny(
        "ARGS=--help", 0, "Choices:"
    ),
    ". .venv/bin/activate": Tiny("&& command -v python", 0, r"/\.venv/bin/python"),
    'eval "$(trainer-sweep -sc install=bash)"': Tiny(
        "&& complete -p trainer-sweep", 0, "-F hydra_bash_completion"
    ),
    "python -m sweep --help": Tiny("", 0, "qwen3_moe, "),
    "python -m sweep -m suite=smoke": Tiny("arch=llama", 0, "1 passed"),
    "python -m sweep -m suite=nightly plan=true": Tiny(
        "arch=qwen3_moe", 0, "9 cases, 11-13 launches"
    ),
    "python -m sweep -m suite=nightly arch=qwen3_moe": Tiny(
        "plan=true", 0, "9 cases, 11-13 launches"
    ),
    "python -m sweep -m arch=gpt_oss layout=cp2_ep2 feature=none fault=null,cp_sinks_dropped:1": (
        Tiny("", 1, f"{CLEAN} .*passed(?s:.*){FAULT}: failed(?s:.*)alive:(?s:.*)parity:")
    ),
    "make ui": Tiny("PORT={port}"),
    "python -m sweep -m rerun=failed": Tiny("plan=true", 0, f"{FAULT} (?s:.*)1 cases, 1 launches"),
    "python -m sweep.judge sweep=latest": Tiny("", 1, "1 passed, 1 failed"),
    f"python -m sweep.locate case={FAULT}": Tiny(
        "", 0, r"step 1, forward\s+module\s+model\.layers\.0\.self_attn\s"
    ),
    "python -m sweep.compare base=previous head=latest": Tiny("", 0, "llama-single-base"),
    "python -m sweep.baseline pin latest": Tiny("", 0, "pinned .* of smoke"),
    "python -m sweep.history suite=smoke": Tiny("", 0, r"smoke: \d+ night(?s:.*)llama-single-base"),
    "python -m sweep.prune keep=90 outputs=outputs": Tiny("", 0, "freed in outputs"),
    "python -m sweep.calibrate --check": Tiny("", 0, r"resume\.loss\S+ threshold .* separates"),
    "python -m sweep.calibrate": Tiny("sweep=latest", 0, r"written: .*/conf/calibrated\.yaml"),
    "python -m sweep -m --config-dir examples/plain_pytorch/conf trainer=plain_pytorch arch=llama "
    "layout=single,fsdp2_ep2 feature=none,none_resume": Tiny(
        "layout=single feature=none", 0, "1 passed"
    ),
}
SERVERS = {"make ui"}
OF_MAKE = {"ARGS", "OUTPUTS", "PORT", "PYTEST_ARGS", "VENV"}  # of the make that runs these tests


def commands(page: str) -> list[str]:
    """The lines of the page's blocks of shell, put together where they go on, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [" ".join(line.split("  #")[0].split(" # ")[0].split()) for line in lines]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """A copy of the tracked files with an environment, as `make` leaves it; and a short suite."""
    folder = tmp_path_factory.mktemp("newcomer") / "trainer-sweep"
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    venv.create(folder / ".venv", symlinks=True)
    (packages,) = (folder / ".venv").glob("lib/*/site-packages")
    (packages / "installed.pth").write_text(f"{sysconfig.get_path('purelib')}\n{folder}\n")
    console_script(folder / ".venv" / "bin", folder / ".venv" / "bin" / "python")
    (folder / ".venv" / ".installed").touch()  # what pip would install is in our own environment
    (folder / "outputs").mkdir()
    shutil.copy(empty_store, folder / "outputs" / "mlflow.db")
    _shorten(folder / "conf" / "suite" / "resume_calibration.yaml")
    return folder


@pytest.fixture(scope="module")
def journey(tree: Path) -> Journey:
    """Every command, typed in the order of the page."""
    return Journey(tree, [(command, run(tree, command)) for command in commands(README)])


def _shorten(path: Path) -> None:
    """Calibration takes no narrower request: one correct resume here, and one broken one."""
    suite = yaml.safe_load(path.read_text())
    suite["rows"] = [suite["rows"][0] | {"seed": 0, "fault": [None, "resume_data_restart"]}]
    suite["calibrates"] = {"resume.loss": ["resume_data_restart"]}
    path.write_text(yaml.safe_dump(suite))


def start(tree: Path, command: str) -> subprocess.Popen[str]:
    kept = {name for name in os.environ if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))}
    env = {name: os.environ[name] for name in kept - OF_MAKE}
    env |= {"PATH": f"{tree}/.venv/bin:{env['PATH']}", "COLUMNS": "200"}
    return subprocess.Popen(
        ["bash", "-c", command], cwd=tree, env=env, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def serves(server: subprocess.Popen[str], address: str) -> bool:
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline and server.poll() is None:
            with suppress(OSError), urllib.request.urlopen(address, timeout=5) as page:
                return b"MLflow" in page.read()
            time.sleep(0.2)
        return False
    finally:
        end(server)


def end(started: subprocess.Popen[str]) -> None:
    """It, and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def run(tree: Path, command: str) -> str | None:
    """What is wrong with what a command did; None if nothing is."""
    tiny, port = TINY[command], free_port()
    started = start(tree, f"{command} {tiny.added.format(port=port)}")
    if command in SERVERS:
        return None if serves(started, f"http://127.0.0.1:{port}") else "does not answer"
    try:
        said, _ = started.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        end(started)
        return "has not ended after five minutes"
    if started.returncode == tiny.code and re.search(tiny.shows, said):
        return None
    return f"exit code {started.returncode}, expected {tiny.code} and {tiny.shows!r} in:\n{said}"


def test_a_command_of_the_readme_without_a_test_is_noticed() -> None:
    assert set(commands(README)) == set(TINY)


@pytest.mark.slow
def test_every_command_of_the_readme_does_what_it_says_there(journey: Journey) -> None:
    wrong = [f"$ {command}\n{what}" for command, what in journey.done if what]
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.slow
def test_the_main_job_ends_with_two_passed_cases_of_five_losses(journey: Journey) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{journey.tree}/outputs/mlflow.db")
    experiment = client.get_experiment_by_name("adhoc")
    assert experiment is not None
    wanted = "tags.kind = 'case' and tags.layout = 'cp4_ep4'"
    runs = client.search_runs([experiment.experiment_id], wanted)
    assert {run.data.tags["case_id"] for run in runs} == {
        "qwen3_moe-cp4_ep4-base",
        "gpt_oss-cp4_ep4-base",
    }
    for run in runs:
        assert run.data.tags["verdict"] == "passed"
        losses = client.get_metric_history(run.info.run_id, "train/loss")
        assert [metric.step for metric in losses] == [1, 2, 3, 4, 5]
        assert len({metric.value for metric in losses}) == 5
