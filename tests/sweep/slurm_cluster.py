"""A Slurm of its own on loopback: a controller, two nodes with four GPUs each, all of this machine.

The GPUs are character devices, or Slurm would not set CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from tests.sweep.servers import missing as missing_service
from tests.sweep.waiting import until

SBIN = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
MAX_ARRAY_SIZE = 4

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
MaxArraySize={max_array_size}
KillWait=3
MessageTimeout=5
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
SchedulerParameters=sched_interval=1
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool.%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.%n.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.%n.log
NodeName=DEFAULT CPUs=8 RealMemory=8000 Gres=gpu:4
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]}
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=9
"""


class Cluster:
    """What a test does to it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {**os.environ, "SLURM_CONF": f"{root}/slurm.conf", "PATH": SBIN}

    def ask(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv, env=self.environment, capture_output=True, text=True, timeout=60
        )

    def do(self, *argv: str) -> str:
        done = self.ask(*argv)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def jobs(self) -> list[str]:
        """Ids of what runs or waits."""
        return self.do("squeue", "--noheader", "--array", "--format=%i").split()

    def start_controller(self) -> None:
        self.do("slurmctld")
        until(lambda: self.ask("sinfo").returncode == 0, "the controller answers")

    def stop_controller(self) -> None:
        self._end("slurmctld")

    def start(self) -> None:
        files = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid",
                 "log-file": "munged.log", "seed-file": "munge.seed"}  # fmt: skip
        self.do(
            "munged", "--force", *(f"--{key}={self.root}/{name}" for key, name in files.items())
        )
        self.start_controller()
        for node in ("node1", "node2"):
            self.do("slurmd", "-N", node)
        until(self._is_idle, "both nodes are idle")

    def _is_idle(self) -> bool:
        idle = self.do("sinfo", "--noheader", "--partition=main", "--states=idle", "--format=%D")
        return idle == "2"

    def mend(self, node: str) -> None:
        """After state=down; Slurm may do so itself."""
        self.ask("scontrol", "update", f"nodename={node}", "state=resume")
        until(self._is_idle, "both nodes are idle")

    def stop(self) -> None:
        self.ask("scancel", "--user=root")
        for daemon in ("slurmd.node1", "slurmd.node2", "slurmctld", "munged"):
            self._end(daemon)

    def _end(self, daemon: str) -> None:
        path = self.root / f"{daemon}.pid"
        if not path.is_file():
            return
        pid = int(path.read_text())
        os.kill(pid, signal.SIGTERM)
        until(lambda: not _runs(pid), f"{daemon} is gone")
        path.unlink(missing_ok=True)


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def running() -> Iterator[Cluster]:
    """A cluster until the end; skips with the reason where there can be none."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=SBIN) is None]
    if missing or os.geteuid() != 0:
        missing_service(f"a Slurm for tests (root, and {', '.join(missing or PROGRAMS)})")
    root = Path(tempfile.mkdtemp(prefix="slurm-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        cluster = Cluster(root)
        _write(root)
        stack.callback(cluster.stop)
        cluster.start()
        yield cluster


def _write(root: Path) -> None:
    root.chmod(0o755)
    host = socket.gethostname().partition(".")[0]
    text = CONFIG.format(host=host, root=root, ports=_free_ports(3), max_array_size=MAX_ARRAY_SIZE)
    (root / "slurm.conf").write_text(text)
    lines = []
    for node in ("node1", "node2"):
        for number in range(4):
            os.mknod(root / f"{node}.gpu{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        lines.append(f"NodeName={node} Name=gpu File={root}/{node}.gpu[0-3]\n")
    (root / "gres.conf").write_text("".join(lines))
    key = root / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
