"""Sweeps through a real Slurm of two nodes on loopback: what happens to jobs, and what is said."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from tests.sweep import slurm_cluster
from tests.sweep.commands import DUMMY_TRAINER, TRAINER, processes_of
from tests.sweep.slurm_cluster import MAX_ARRAY_SIZE, Cluster
from tests.sweep.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.slurm]

LAUNCHER = ("hydra/launcher=slurm", "hydra.launcher.poll_seconds=0.3",
            "hydra.launcher.grace_seconds=2")  # fmt: skip
DUMMIES = (*DUMMY_TRAINER, TRAINER.replace("{behaviour}", "{arch}"))
CASES = ("layout=single", *DUMMIES)
TWO_NODES = ("layout=fsdp2_ep2", "layout.nodes=2")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with slurm_cluster.running() as started:
        yield started


class Sweep:
    """A sweep whose archs each stand for a behaviour of dummy.py."""

    def __init__(self, cluster: Cluster, outputs: Path, **behaviours: str) -> None:
        self.cluster, self.outputs = cluster, outputs
        self.environment = {**cluster.environment, "COLUMNS": "100",
                            "BEHAVIOURS": json.dumps(behaviours)}  # fmt: skip
        self.archs = f"arch={','.join(behaviours)}"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["env", "--default-signal=INT", sys.executable, "-m", "sweep", "-m", self.archs,
             *LAUNCHER, f"outputs={self.outputs}", *arguments],
            env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *arguments: str) -> tuple[int, str]:
        return ended(self.start(*arguments))

    def command(self, module: str, *arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments, f"outputs={self.outputs}"],
            env=self.environment, text=True, capture_output=True, timeout=200,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    @property
    def folder(self) -> Path:
        return next(self.outputs.glob("*/sweep.json")).parent

    def case(self, arch: str) -> Path:
        return next(self.folder.glob(f"{arch}-*"))

    def job(self, arch: str) -> str:
        jobs = json.loads((self.folder / "slurm.json").read_text())
        return next(job["id"] for case, job in jobs.items() if case.startswith(f"{arch}-"))

    def held(self, arch: str) -> tuple[float, float]:
        """From when to when Slurm says that the case's job held its nodes."""
        shown = self.cluster.do("scontrol", "show", "job", self.job(arch))
        times = [shown.partition(f"{name}=")[2].split()[0] for name in ("StartTime", "EndTime")]
        start, end = (datetime.fromisoformat(time).timestamp() for time in times)
        return start, end

    def until_it_trains(self, arch: str) -> None:
        lines = f"*/{arch}-*/launches/1_train/metrics.jsonl"
        until(
            lambda: any(path.read_text().count("\n") >= 3 for path in self.outputs.glob(lines)),
            f"{arch} trains",
        )

    def verdict(self, arch: str) -> str:
        return str(json.loads((self.case(arch) / "findings.json").read_text())["verdict"])

    def said(self, arch: str) -> str:
        findings = json.loads((self.case(arch) / "findings.json").read_text())["findings"]
        return " ".join(found["message"] for found in findings)

    def facts(self, arch: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.case(arch) / "facts.json").read_text())
        return found


def ended(sweep: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = sweep.communicate(timeout=200)
    return sweep.returncode, said


WRONG = {
    "llama": ("ok", "passed", ""),
    "qwen3": ("exit_42", "crashed", "exit code 42 after step 3"),
    "qwen3_moe": ("job_killed", "crashed", "the job died without leaving a result"),
    "gpt_oss": ("hang", "crashed", "the job was cancelled in Slurm"),
    "glm4_moe": ("hang", "crashed", "told to stop, and not by the sweep (interrupted: SIGUSR2)"),
    "laguna": ("hang", "timed_out", "the job ran into Slurm's time limit"),
    "minimax_m2": ("hang", "crashed", "the job was preempted by another in Slurm"),
}


@dataclass
class Wrong:
    """What came of it, and of the attempt to have Slurm run a case again."""

    sweep: Sweep
    code: int
    out: str
    requeue: subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def wrong(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Wrong:
    outputs = tmp_path_factory.mktemp("wrong")
    (outputs / "mlflow.db").write_bytes(empty_store.read_bytes())
    sweep = Sweep(cluster, outputs, **{arch: how for arch, (how, _, _) in WRONG.items()})
    started = sweep.start(*CASES, "hydra.launcher.array_parallelism=3")
    sweep.until_it_trains("gpt_oss")
    cluster.do("scancel", sweep.job("gpt_oss"))
    sweep.until_it_trains("glm4_moe")
    cluster.do("scancel", "--signal=USR2", sweep.job("glm4_moe"))
    sweep.until_it_trains("laguna")
    requeue = cluster.ask("scontrol", "requeue", sweep.job("laguna"))
    cluster.do("scontrol", "update", f"jobid={sweep.job('laguna')}", "endtime=now")
    sweep.until_it_trains("minimax_m2")
    until(lambda: len(cluster.jobs()) == 1, "only the last case runs")
    cluster.do("sbatch", "--partition=urgent", "--nodes=2", "--exclusive", "--output=/dev/null",
               "--wrap=sleep 1")  # fmt: skip
    return Wrong(sweep, *ended(started), requeue)


class TestASweepWhoseJobsEndInEveryWay:
    @pytest.mark.parametrize("arch", WRONG)
    def test_tells_them_apart(self, wrong: Wrong, arch: str) -> None:
        _, verdict, message = WRONG[arch]
        assert wrong.sweep.verdict(arch) == verdict
        assert message in wrong.sweep.said(arch)
        assert message in " ".join(wrong.out.split())

    def test_exits_1_and_leaves_no_job_and_no_process(self, wrong: Wrong) -> None:
        assert wrong.code == 1
        until(lambda: wrong.sweep.cluster.jobs() == [], "the queue is empty")
        assert processes_of(wrong.sweep.outputs) == []

    @pytest.mark.parametrize("arch", ["qwen3", "qwen3_moe"])
    def test_gives_back_what_a_crash_held(self, wrong: Wrong, arch: str) -> None:
        facts, (_, freed) = wrong.sweep.facts(arch), wrong.sweep.held(arch)
        assert freed - float(str(facts["started"])) - float(str(facts["seconds"])) < 30

    def test_never_runs_a_case_again(self, wrong: Wrong) -> None:
        assert "disabled" in wrong.requeue.stderr, "Slurm agreed to run a case again"
        for arch in WRONG:
            lines = (
                (wrong.sweep.case(arch) / "launches/1_train/metrics.jsonl").read_text().splitlines()
            )
            steps = [json.loads(line)["step"] for line in lines]
            assert steps == sorted(set(steps))

    def test_submits_arrays_no_larger_than_slurm_allows(self, wrong: Wrong) -> None:
        ids = [wrong.sweep.job(arch).split("_") for arch in WRONG]
        assert [int(number) for _, number in ids] == [0, 1, 2, 3, 0, 1, 2]
        assert len({array for array, _ in ids}) == 2
        assert MAX_ARRAY_SIZE == 4

    def test_never_runs_more_at_once_than_it_may(self, wrong: Wrong) -> None:
        spans = [wrong.sweep.held(arch) for arch in WRONG]
        together = [sum(start <= begin < end for start, end in spans) for begin, _ in spans]
        assert max(together) <= 3


def test_a_task_that_waits_and_is_cancelled_reads_so(cluster: Cluster, outputs: Path) -> None:
    sweep = Sweep(cluster, outputs, llama="hang", qwen3="ok", gpt_oss="ok")
    started = sweep.start(*CASES, "hydra.launcher.array_parallelism=1")
    sweep.until_it_trains("llama")
    cluster.do("scancel", sweep.job("qwen3"))
    cluster.do("scancel", sweep.job("llama"))
    code, said = ended(started)
    assert code == 1, said
    assert sweep.verdict("qwen3") == "crashed"
    assert "cancelled in Slurm" in sweep.said("qwen3")
    assert sweep.verdict("gpt_oss") == "passed"


def test_a_detached_sweep_is_collected_later(cluster: Cluster, outputs: Path) -> None:
    sweep = Sweep(cluster, outputs, llama="ok", qwen3="hang")
    code, said = sweep.run(*CASES, "detach=true")
    assert code == 0, said
    assert f"python -m sweep.collect sweep={sweep.folder.name}" in said
    sweep.until_it_trains("qwen3")
    until(lambda: list(sweep.case("llama").glob("facts.json")), "the first case has ended")

    code, said = sweep.command("sweep.collect")
    assert code == 3, said  # nothing failed, and not all is known
    assert f"qwen3-single-base: RUNNING, job {sweep.job('qwen3')}" in said
    assert sweep.verdict("llama") == "passed"
    code, said = sweep.command("sweep", "-m", "resume_sweep=latest")
    assert code == 2
    assert "1 jobs of sweep" in said
    assert "still run in Slurm" in said

    node = cluster.do("squeue", "--noheader", f"--jobs={sweep.job('qwen3')}", "--format=%N")
    cluster.do("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
    code, said = sweep.command("sweep.collect", "wait=true", "grace=2")
    cluster.mend(node)
    assert code == 1, said
    assert (sweep.verdict("llama"), sweep.verdict("qwen3")) == ("passed", "crashed")
    assert "the job's node failed" in sweep.said("qwen3")
    assert processes_of(outputs) == []

    again = Sweep(cluster, outputs, qwen3="ok")
    code, said = again.command("sweep", "-m", *LAUNCHER, "rerun=failed")
    assert code == 0, said
    assert "2 passed" in (sweep.folder / "summary.md").read_text()


def test_each_job_has_gpus_of_its_own(cluster: Cluster, outputs: Path) -> None:
    sweep = Sweep(cluster, outputs, llama="ok", qwen3="ok")
    code, said = sweep.run(*DUMMIES, "layout=fsdp2_ep2", "device=cuda",
                           "+hydra.launcher.additional_parameters.nodelist=node1")  # fmt: skip
    assert code == 0, said
    (began, ended_), (other_began, other_ended) = sweep.held("llama"), sweep.held("qwen3")
    assert max(began, other_began) < min(ended_, other_ended), "one after the other"
    seen = [
        json.loads((sweep.case(arch) / "launches/1_train/environment.json").read_text())
        for arch in ("llama", "qwen3")
    ]
    assert {one["CUDA_VISIBLE_DEVICES"] for one in seen} == {"0,1", "2,3"}
    assert sweep.facts("llama")["environment"]["device"] == "cuda"  # type: ignore[index]


def test_the_trainer_trains_on_two_nodes(cluster: Cluster, outputs: Path) -> None:
    sweep = Sweep(cluster, outputs, qwen3_moe="-")
    code, said = sweep.run(*TWO_NODES, "steps=2", "feature.compile=false")
    assert code == 0, said
    ranks = sorted((sweep.case("qwen3_moe") / "launches/1_train/ranks").iterdir())
    assert [path.name for path in ranks] == ["from_rank_0", "from_rank_1"]
    assert sweep.case("qwen3_moe").name == "qwen3_moe-fsdp2_ep2_n2-base"


def test_what_goes_wrong_on_one_node_ends_the_other(cluster: Cluster, outputs: Path) -> None:
    sweep = Sweep(cluster, outputs, llama="rank_1_exits", qwen3="hang")
    trainer = TRAINER.replace("{behaviour}", "{arch}").replace('"{python}",', "")
    code, said = sweep.run(*TWO_NODES, *DUMMY_TRAINER, trainer, "trainer.torchrun=true",
                           "launch.timeout_seconds=25")  # fmt: skip
    assert code == 1, said
    assert "rank 1 failed first" in sweep.said("llama")
    assert float(str(sweep.facts("llama")["seconds"])) < 30, "it held its nodes"
    assert sweep.verdict("qwen3") == "timed_out"
    (launch,) = sweep.facts("qwen3")["launches"]  # type: ignore[misc]
    assert launch["rank_tail"].count("in misbehave") == 2  # the stacks of both nodes
    until(lambda: cluster.jobs() == [], "the queue is empty", seconds=30)
    assert processes_of(outputs) == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_leaves_nothing_in_the_queue(
    cluster: Cluster, outputs: Path, stop: signal.Signals
) -> None:
    sweep = Sweep(cluster, outputs, llama="ok", qwen3="hang", gpt_oss="hang")
    started = sweep.start(
        *CASES, "hydra.launcher.array_parallelism=2", "hydra.launcher.orphan_seconds=4"
    )
    sweep.until_it_trains("qwen3")
    until(lambda: list(sweep.folder.glob("llama-*/findings.json")), "the first case is judged")
    os.killpg(started.pid, stop)
    code, said = ended(started)
    assert code == (130 if stop is signal.SIGINT else -stop)
    until(lambda: cluster.jobs() == [], "the queue is empty")
    until(lambda: processes_of(outputs) == [], "what ends a killed sweep's runs has done so")
    assert sweep.verdict("llama") == "passed"
    assert not list(sweep.folder.glob("qwen3-*/findings.json"))
    if stop is signal.SIGINT:
        assert "Traceback" not in said
        assert "2 of 3 cases have no result" in said


def test_what_slurm_refuses_is_neither_red_nor_green(cluster: Cluster, outputs: Path) -> None:
    code, said = Sweep(cluster, outputs, llama="ok").run(*CASES, "hydra.launcher.partition=none")
    assert code == 3
    said = " ".join(said.split())
    assert "could not be submitted: sbatch: error: invalid partition specified: none" in said


def test_shards_of_a_suite_each_take_a_node(cluster: Cluster, outputs: Path) -> None:
    sweep = Sweep(cluster, outputs, llama="ok", qwen3="exit_42")
    logs = f"--output={outputs}/shard-%a.log"
    codes = run_script(sweep, "slurm_shards.sh", ["--array=1-2", logs],
                       ["suite=nightly", sweep.archs, "layout=cp4_ep4", *DUMMIES])  # fmt: skip
    assert sorted(codes) == ["0:0", "1:0"], [path.read_text() for path in outputs.glob("*.log")]
    cases = [json.loads(path.read_text())["cases"] for path in outputs.glob("*/sweep.json")]
    assert sorted(cases) == [["llama-cp4_ep1-base"], ["qwen3-cp4_ep1-base"]]
    found = {
        path.parent.name: json.loads(path.read_text())["verdict"]
        for path in outputs.glob("*/*/findings.json")
    }
    assert found == {"llama-cp4_ep1-base": "passed", "qwen3-cp4_ep1-base": "crashed"}


def test_a_sweep_may_be_driven_from_a_job(cluster: Cluster, outputs: Path) -> None:
    sweep = Sweep(cluster, outputs, llama="exit_42")
    codes = run_script(sweep, "slurm_nightly.sh", [f"--output={outputs}/driver.log"],
                       [sweep.archs, *CASES, *LAUNCHER])  # fmt: skip
    assert codes == ["1:0"], (outputs / "driver.log").read_text()
    assert sweep.verdict("llama") == "crashed"


def run_script(sweep: Sweep, name: str, options: list[str], words: list[str]) -> list[str]:
    """The exit codes of the jobs of scripts/, as Slurm shows them."""
    cluster, script = sweep.cluster, Path(__file__).parents[2] / "scripts" / name
    cluster.environment |= {"PYTHON": sys.executable, "BEHAVIOURS": sweep.environment["BEHAVIOURS"]}
    job = cluster.do("sbatch", "--parsable", *options, str(script), *words,
                     f"outputs={sweep.outputs}")  # fmt: skip
    until(lambda: cluster.jobs() == [], f"{name} has ended", seconds=120)
    return re.findall(r"ExitCode=(\S+)", cluster.do("scontrol", "show", "job", job))


def test_a_slurm_that_does_not_answer_is_neither_red_nor_green(
    cluster: Cluster, outputs: Path
) -> None:
    sweep = Sweep(cluster, outputs, llama="hang")
    started = sweep.start(
        *CASES, "hydra.launcher.patience_seconds=3", "hydra.launcher.orphan_seconds=4"
    )
    sweep.until_it_trains("llama")
    cluster.stop_controller()
    try:
        code, said = ended(started)
        late, said_later = Sweep(cluster, outputs, llama="ok").run(*CASES)
    finally:
        cluster.start_controller()
    assert (code, late) == (3, 3), said + said_later
    assert "Slurm does not answer" in said
    assert "1 of 1 cases have no result" in said
    assert "Slurm does not answer scontrol" in said_later
    assert list(outputs.glob("*/*/findings.json")) == []
    until(lambda: processes_of(outputs) == [], "the job noticed that its sweep is gone")
