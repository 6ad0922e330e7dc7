"""What the sweep makes of Slurm's answers, whose commands say here what a test wants."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hydra_plugins.sweep_plugins.slurm import ArrayLauncher, _alarm
from sweep.errors import MachineryError
from sweep.job_end import DIED
from sweep.root_cause import rank_of
from sweep.schema import Device, LayoutConf, Settings
from sweep.slurm import cluster, heartbeat, nodes
from sweep.slurm.arrays import Shape, arrays, minutes, shape_of
from sweep.slurm.cluster import GONE, Queue
from tests.sweep.test_plan import planned

Says = Callable[[str, str], None]


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Says:
    """Makes one of Slurm's commands a shell script."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    def make(command: str, script: str) -> None:
        path = tmp_path / command
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return make


def test_the_largest_array_is_what_the_cluster_says(says: Says) -> None:
    says("scontrol", "echo 'MaxArraySize            = 1001'")
    assert cluster.max_array_size() == 1001
    says("scontrol", "echo 'MaxArraySize            = 0'")
    assert cluster.max_array_size() == 1  # no arrays there: one job each


def test_jobs_are_told_apart_by_id(says: Says) -> None:
    says("squeue", "printf '12_0|RUNNING\\n12_1|PENDING\\n13|TIMEOUT\\n'")
    queue = Queue(["a"], every=0.0, patience=0.0)
    assert [queue.state(one) for one in ("12_0", "12_1", "13", "14")] == [
        "RUNNING", "PENDING", "TIMEOUT", GONE,
    ]  # fmt: skip


def test_a_silent_slurm_is_waited_for_and_then_an_error(says: Says) -> None:
    says("squeue", "echo '1|RUNNING'")
    patient, hasty = Queue(["a"], 0.0, patience=60.0), Queue(["a"], 0.0, patience=0.0)
    assert (patient.state("1"), hasty.state("1")) == ("RUNNING", "RUNNING")
    says("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert patient.state("1") == "RUNNING"
    with pytest.raises(MachineryError, match="Unable to contact slurm controller"):
        hasty.state("1")


def test_a_command_that_hangs_is_an_error(says: Says, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "ANSWER_SECONDS", 0.2)
    says("scontrol", "exec sleep 60")
    with pytest.raises(MachineryError, match=r"silent: scontrol took over 0\.2 s"):
        cluster.max_array_size()


def test_a_machine_without_slurm_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineryError, match="scontrol is not installed here"):
        cluster.max_array_size()
    cluster.cancel("1")  # nothing to be said: there is nothing to cancel


def test_a_submission_that_hangs_is_an_error(says: Says, tmp_path: Path) -> None:
    import submitit

    says("srun", "")
    says("sbatch", "exec sleep 60")
    launcher = SimpleNamespace(params={"submit_seconds": 0.5})
    executor = submitit.AutoExecutor(folder=tmp_path / "jobs", cluster="slurm")
    began = time.monotonic()
    with pytest.raises(MachineryError, match=r"not be submitted: sbatch took longer than 0\.5 s"):
        ArrayLauncher._submit(launcher, executor, ["settings"])
    assert time.monotonic() - began < 10


def test_an_alarm_does_not_ring_late() -> None:
    with _alarm(0.05):
        pass
    time.sleep(0.1)


@pytest.mark.parametrize(
    ("state", "log", "reason", "timed_out"),
    [
        ("CANCELLED", "", "cancelled", False),
        ("TIMEOUT", "", "time limit", True),
        ("PREEMPTED", "", "preempted", False),
        ("NODE_FAIL", "", "node failed", False),
        ("OUT_OF_MEMORY", "", "memory", False),
        ("COMPLETED", "", "died", False),
        (GONE, "", "died", False),
        (GONE, "*** JOB 7 ON n1 CANCELLED AT 2026-01-01 DUE TO TIME LIMIT ***", "limit", True),
        (GONE, "*** JOB 7 ON n1 CANCELLED AT 2026-01-01 ***", "cancelled", False),
        (GONE, "*** JOB 7 ON n1 CANCELLED AT 2026-01-01 DUE TO NODE FAILURE", "node", False),
    ],
)  # fmt: skip
def test_how_a_job_ended_is_known_from_its_state_or_its_log(
    tmp_path: Path, state: str, log: str, reason: str, timed_out: bool
) -> None:
    (tmp_path / "log").write_text(f"before\nslurmstepd: error: {log}\n")
    end = cluster.end_of(state, str(tmp_path / "log"))
    assert reason in end.reason
    assert end.timed_out is timed_out
    assert (end is DIED) is (reason == "died")


def test_a_job_asks_for_the_nodes_and_gpus_of_its_layout() -> None:
    two_nodes = Settings(
        layout=LayoutConf(world_size=8, dp_shard=8, cp=1, ep=8, nodes=2), device=Device.cuda
    )
    assert shape_of(two_nodes) == Shape(nodes=2, gpus_per_node=4, cpus=4)
    (one,) = planned(["arch=llama", "layout=cp4_ep4", "device=cpu"])
    assert shape_of(one.settings) == Shape(nodes=1, gpus_per_node=0, cpus=4)


def test_slurms_time_limit_leaves_room_for_every_launch() -> None:
    (one,) = planned(["arch=llama", "layout=single", "launch.timeout_seconds=90"])
    assert minutes(one.settings) == 12
    resume = ["arch=llama", "layout=single", "launch.timeout_seconds=90", "feature=resume"]
    assert minutes(planned([*resume, "trainer=sft"])[0].settings) == 13


@given(
    st.lists(st.sampled_from([Shape(1, 4, 4), Shape(1, 0, 1), Shape(2, 4, 4)])), st.integers(1, 9)
)
def test_every_job_is_in_one_array_of_its_shape_within_the_limit(
    shapes: list[Shape], limit: int
) -> None:
    found = arrays(shapes, limit)
    assert sorted(index for one in found for index in one.indices) == list(range(len(shapes)))
    assert all(len(one.indices) <= limit for one in found)
    assert all(shapes[index] == one.shape for one in found for index in one.indices)
    full = {shape: -(-shapes.count(shape) // limit) for shape in shapes}
    assert len(found) == sum(full.values())


def test_a_job_notices_that_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not heartbeat.Listener().is_stopped()  # not asked to listen
    with heartbeat.beating(tmp_path, 1.0) as environment:
        monkeypatch.setenv(heartbeat.VARIABLE, environment[heartbeat.VARIABLE])
        listener = heartbeat.Listener()
        time.sleep(0.3)
        assert not listener.is_stopped()
    time.sleep(1.2)
    assert listener.is_stopped()
    (tmp_path / heartbeat.FILE).unlink()
    assert heartbeat.Listener().is_stopped()


def test_nodes_that_slurm_does_not_have_are_unavailable_with_the_reason() -> None:
    (one,) = planned(["arch=llama", "layout=fsdp4_ep4_n2"])
    assert one.case.id == "llama-fsdp4_ep1_n2-base"
    assert one.unavailable == "2 nodes take hydra/launcher=slurm, and -m"


def test_each_node_starts_its_ranks_and_keeps_their_logs_apart() -> None:
    layout = LayoutConf(world_size=8, dp_shard=8, cp=1, ep=8, nodes=2)
    words = nodes.command(layout, Path("/launch/ranks"), ["-m", "sft", "c.json"])
    assert words[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--kill-on-bad-exit=1"} <= set(words)
    argv = nodes.torchrun(words[words.index("sweep.slurm.nodes") + 1 :], node=1)
    assert argv[argv.index("--node-rank") + 1] == "1"
    assert argv[argv.index("--nproc-per-node") + 1] == "4"
    assert argv[argv.index("--log-dir") + 1] == "/launch/ranks/from_rank_4"
    assert argv[-3:] == ["-m", "sft", "c.json"]
    assert rank_of(Path("/launch/ranks/from_rank_4/none_x/attempt_0/3")) == 7
    assert rank_of(Path("/launch/ranks/none_x/attempt_0/3")) == 3
