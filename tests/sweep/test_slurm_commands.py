"""What the sweep makes of Slurm's answers, whose commands say here what a test wants."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from submitit.slurm.slurm import _make_sbatch_string

from hydra_plugins.sweep_plugins.slurm import ArrayConf, ArrayLauncher, _alarm, request
from sweep.case.labels import plain, restored, settings_of
from sweep.errors import MachineryError
from sweep.facts import DIED, JobEnd
from sweep.logs.root_cause import rank_of
from sweep.schema import Device, LaunchConf, LayoutConf, Settings
from sweep.slurm import cluster, heartbeat, nodes
from sweep.slurm.arrays import Shape, arrays, shape_of
from sweep.slurm.cluster import GONE, Queue
from sweep.slurm.jobs import Follower, Pace, SlurmJob, active, read_jobs, write_jobs
from tests.sweep.conftest import Says
from tests.sweep.planning import CPU, composed, planned
from tests.sweep.waiting import until

PARAMS = {**asdict(ArrayConf()), "partition": "gpu", "account": "lab", "qos": "night"}


def test_the_largest_array_is_what_the_cluster_says(says: Says) -> None:
    says("scontrol", "echo 'MaxArraySize            = 1001'")
    assert cluster.max_array_size() == 1001
    says("scontrol", "echo 'MaxArraySize            = 0'")
    assert cluster.max_array_size() == 1  # no arrays there: one job each


def test_jobs_are_told_apart_by_id(says: Says) -> None:
    says("squeue", "printf '12_0|RUNNING\\n12_1|PENDING\\n13|TIMEOUT\\n'")
    queue = Queue(["a"], every=0.0, patience=0.0)
    assert [queue.state(one) for one in ("12_0", "12_1", "13", "14")] == [
        "RUNNING",
        "PENDING",
        "TIMEOUT",
        GONE,
    ]


def test_a_job_that_never_wrote_a_log_was_cancelled_before_it_started(tmp_path: Path) -> None:
    end = cluster.end_of(GONE, str(tmp_path / "9_1.err"))
    assert end.reason == "the job was cancelled in Slurm before it started"
    (tmp_path / "9_1.err").write_text("")
    assert cluster.end_of(GONE, str(tmp_path / "9_1.err")) is DIED


def test_a_controller_that_was_restarted_is_waited_for_until_it_knows_its_jobs(says: Says) -> None:
    says("squeue", "printf '9_0|RUNNING\\n9_1|PENDING\\n'")
    says("scontrol", "echo 'BOOT_TIME               = 2026-01-01T00:00:00'")
    patient, hasty = Queue(["a"], 0.0, patience=60.0), Queue(["a"], 0.0, patience=0.0)
    for queue in (patient, hasty):
        assert queue.state("9_0") == "RUNNING"
    says("squeue", "printf '9_1|PENDING\\n'")
    assert patient.state("9_0") == GONE, "the same controller knows it no longer"
    says("squeue", "printf '9_0|RUNNING\\n9_1|PENDING\\n'")
    assert patient.state("9_0") == "RUNNING"

    says("scontrol", "echo 'BOOT_TIME               = 2026-01-01T09:00:00'")
    says("squeue", "")
    assert (patient.state("9_0"), patient.state("9_1")) == ("RUNNING", "PENDING")
    assert hasty.state("9_0") == GONE, "its patience is over"
    says("squeue", "printf '9_0|COMPLETED\\n9_1|RUNNING\\n'")
    assert (patient.state("9_0"), patient.state("9_1")) == ("COMPLETED", "RUNNING")
    says("squeue", "")
    assert patient.state("9_0") == GONE, "it was seen to end"
    assert patient.state("9_1") == "RUNNING"


def test_a_silent_slurm_is_waited_for_and_then_an_error(says: Says) -> None:
    says("squeue", "echo '1|RUNNING'")
    patient, hasty = Queue(["a"], 0.0, patience=60.0), Queue(["a"], 0.0, patience=0.0)
    assert (patient.state("1"), hasty.state("1")) == ("RUNNING", "RUNNING")
    says("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert patient.state("1") == "RUNNING"
    with pytest.raises(MachineryError, match="Unable to contact slurm controller"):
        hasty.state("1")


def test_before_its_first_answer_nothing_is_known_of_a_job(says: Says) -> None:
    says("squeue", "exit 1")
    queue = Queue(["a"], 0.0, patience=60.0)
    assert queue.state("1") == cluster.UNKNOWN
    assert cluster.is_active(cluster.UNKNOWN)
    says("squeue", "")
    assert queue.state("1") == GONE


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
    executor = submitit.AutoExecutor(folder=tmp_path / "jobs", cluster="slurm")
    launcher = SimpleNamespace(params={"submit_seconds": 0.5}, _executor=lambda _asked: executor)
    began = time.monotonic()
    with pytest.raises(MachineryError, match=r"not be submitted: sbatch took longer than 0\.5 s"):
        ArrayLauncher._submit(launcher, {}, ["settings"])
    assert time.monotonic() - began < 10


def test_a_setting_that_submitit_does_not_have_is_an_error(says: Says, tmp_path: Path) -> None:
    says("srun", "")
    launcher = ArrayLauncher(**{**PARAMS, "submit_seconds": 5.0})
    launcher.observer = SimpleNamespace(folder=tmp_path)
    with pytest.raises(MachineryError, match=r"not be submitted: .*speed"):
        launcher._submit({"speed": "high"}, ["settings"])


def test_a_plan_expects_of_the_cluster_what_may_run_at_once() -> None:
    launcher, cases = ArrayLauncher(**{**PARAMS, "array_parallelism": 2}), [(60.0, 4)] * 3
    assert launcher.expected(CPU, LaunchConf(), cases) == (120.0, 2)


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


def asked(shape: Shape, before: str | None = None, **params: object) -> str:
    """The batch script that submitit makes of it."""
    words = request({**PARAMS, **params}, shape, 25, before)
    slurm = {"timeout_min": "time", "tasks_per_node": "ntasks_per_node"}
    drop = ("_target_",)
    values = {slurm.get(key, key): value for key, value in words.items() if key not in drop}
    return str(_make_sbatch_string("command", "/folder", map_count=3, **values))


def test_a_job_requests_its_shape_and_what_the_launcher_was_told() -> None:
    script = asked(Shape(nodes=2, gpus_per_node=4, cpus=4), array_parallelism=2)
    for line in (
        "nodes=2",
        "gpus-per-node=4",
        "cpus-per-task=4",
        "ntasks-per-node=1",
        "time=25",
        "partition=gpu",
        "account=lab",
        "qos=night",
        "array=0-2%2",
        "no-requeue",
        "signal=CONT@1",
    ):
        assert f"#SBATCH --{line}\n" in script
    assert "srun --unbuffered" in script
    assert "--nodes=1 --ntasks=1 --cpus-per-task=4" in script


def test_a_cluster_with_ways_of_its_own_gets_them() -> None:
    shape = Shape(nodes=1, gpus_per_node=4, cpus=4)
    script = asked(shape, gres="gpu:h200:4", timeout_min=7, cpus_per_task=64)
    assert "--gres=gpu:h200:4\n" in script
    assert "gpus-per-node" not in script
    assert "--time=7\n" in script
    assert "#SBATCH --cpus-per-task=64\n" in script
    script = asked(shape, gpus_per_task=4, cpus_per_gpu=8)
    assert "--cpus-per-gpu=8\n" in script
    assert "cpus-per-task" not in script


def test_an_array_waits_for_the_one_before_and_for_what_the_user_says() -> None:
    shape = Shape(1, 0, 1)
    assert "--dependency=afterany:7\n" in asked(shape, before="7")
    users = {"dependency": "singleton", "reservation": "night"}
    script = asked(shape, before="7", additional_parameters=users)
    assert "--dependency=afterany:7,singleton\n" in script
    assert "--reservation=night\n" in script


class Session:
    """As much of a session as following jobs takes; job 1 leaves no facts."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, str]] = []

    def started(self, index: int) -> None:
        self.told.append(("started", index, ""))

    def has_facts(self, index: int) -> bool:
        return index != 1

    def ended(self, index: int, log: str, end: JobEnd) -> None:
        self.told.append(("ended", index, end.reason))

    def tick(self) -> None: ...


def follower(session: Session, count: int, grace: float) -> Follower:
    jobs = {index: SlurmJob(f"9_{index}", "a", "") for index in range(count)}
    queue = Queue(["a"], every=0.0, patience=0.0)
    return Follower(session, jobs, queue, Pace(0.05, grace))  # type: ignore[arg-type]


def test_a_session_is_told_of_each_job_once(says: Says) -> None:
    says("squeue", "printf '9_0|PENDING\\n9_1|RUNNING\\n9_2|COMPLETED\\n'")
    session = Session()
    following = follower(session, 3, grace=0.0)
    following.look()
    following.look()
    assert session.told == [("started", 1, ""), ("ended", 2, DIED.reason)]
    says("squeue", "printf '9_0|RUNNING\\n9_1|NODE_FAIL\\n'")
    following.run_ended()
    assert session.told[2:] == [("started", 0, ""), ("ended", 1, "the job's node failed")]
    assert (list(following.left), following.states[0]) == ([0], "RUNNING")
    says("squeue", "")
    following.run()
    assert session.told[-1] == ("ended", 0, DIED.reason)


def test_files_that_come_late_are_waited_for(says: Says) -> None:
    says("squeue", "printf '9_0|COMPLETED\\n9_1|COMPLETED\\n'")
    session, began = Session(), time.monotonic()
    follower(session, 2, grace=0.5).run()
    assert [index for _, index, _ in session.told] == [0, 1]
    assert time.monotonic() - began >= 0.5


def test_which_case_is_which_job_is_kept(tmp_path: Path) -> None:
    assert read_jobs(tmp_path) == {}
    write_jobs(tmp_path, {"a": SlurmJob("9_0", "n", "log"), "b": SlurmJob("9_1", "n", "log")})
    write_jobs(tmp_path, {"b": SlurmJob("12", "m", "log")})
    jobs = read_jobs(tmp_path)
    assert [jobs[case].id for case in ("a", "b")] == ["9_0", "12"]


def test_a_job_that_was_submitted_as_the_sweep_was_killed_is_known_by_its_name(
    says: Says, tmp_path: Path
) -> None:
    folder = tmp_path / "20260101-000000-abcd"
    folder.mkdir()
    says("squeue", "exit 1")
    assert active(folder) == []  # one of this machine: Slurm is not asked
    write_jobs(folder, {})
    says(
        "squeue",
        f"printf '9_0|COMPLETED|sweep-{folder.name}-1\\n"
        f"12|PENDING|sweep-{folder.name}-2\\n13|RUNNING|other\\n'",
    )
    assert active(folder) == ["12"]


@pytest.mark.parametrize("trainer", ["sft", "hf_trainer", "torchtitan", "prime_rl"])
def test_a_detached_case_comes_back_from_disk_as_it_was_planned(trainer: str) -> None:
    words = ["arch=llama", "layout=fsdp4_ep4", "feature=resume", f"trainer={trainer}"]
    settings = settings_of(composed(words), CPU)
    assert restored(json.loads(json.dumps(plain(settings)))) == settings


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
    file = tmp_path / heartbeat.FILE
    with heartbeat.beating(tmp_path, 60.0) as environment:
        monkeypatch.setenv(heartbeat.VARIABLE, environment[heartbeat.VARIABLE])
        assert not heartbeat.Listener().is_stopped()
    os.utime(file, (0, 0))
    assert heartbeat.Listener().is_stopped()
    file.unlink()
    assert heartbeat.Listener().is_stopped()


def test_a_file_system_that_fails_for_a_moment_ends_no_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / heartbeat.FILE
    with heartbeat.beating(tmp_path, 0.5) as environment:
        monkeypatch.setenv(heartbeat.VARIABLE, environment[heartbeat.VARIABLE])
        with monkeypatch.context() as patch:
            patch.setattr(Path, "touch", full)
            time.sleep(0.2)
        os.utime(file, (0, 0))
        until(lambda: file.stat().st_mtime, "it beats again")
    os.utime(file, (0, 0))
    with monkeypatch.context() as patch:
        patch.setattr("tempfile.TemporaryFile", full)
        assert not heartbeat.Listener().is_stopped()
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
