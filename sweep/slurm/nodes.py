"""Ranks on several nodes of a Slurm job: srun starts one torchrun on each of them.

The job's own process is on the first node. It reaches the others through Slurm alone: its markers
and signals end there.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from sweep.errors import MachineryError
from sweep.schema import LayoutConf
from sweep.slurm import cluster

STEP = "sweep_ranks"  # the name of the step in Slurm
ENDED_SECONDS = 15.0  # for Slurm to end a step


def command(layout: LayoutConf, ranks: Path, program: Sequence[str]) -> list[str]:
    """`program` on every rank of the layout, meeting at a free port of this node."""
    return [
        "srun", f"--job-name={STEP}", f"--nodes={layout.nodes}", f"--ntasks={layout.nodes}",
        "--ntasks-per-node=1", f"--cpus-per-task={os.environ.get('SLURM_CPUS_PER_TASK', '1')}",
        "--overlap",  # the job's own process holds the first node's share
        "--kill-on-bad-exit=1", "--wait=10",  # a node that ended ends the others
        sys.executable, "-P", "-m", "sweep.slurm.nodes", str(layout.nodes),
        str(layout.ranks_per_node), socket.gethostname(), str(_free_port()), str(ranks),
        *program,
    ]  # fmt: skip


def torchrun(argv: Sequence[str], node: int) -> list[str]:
    """What node number `node` runs, of `command`'s words after the module's name."""
    nodes, ranks_per_node, host, port, ranks, *program = argv
    # Not the c10d rendezvous: it numbers the nodes as it likes, and then no log's rank is known.
    return [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--node-rank", str(node),
        "--nproc-per-node", ranks_per_node, "--master-addr", host, "--master-port", port,
        "--log-dir", f"{ranks}/from_rank_{node * int(ranks_per_node)}", "--tee", "3", *program,
    ]  # fmt: skip


class Step:
    """The ranks of a launch on all nodes of this job."""

    def dump_stacks(self) -> None:
        """SIGABRT to every process of it, which Python answers with the stacks of all threads."""
        for step in self._running():
            cluster.cancel("--signal=ABRT", step)

    def end(self) -> None:
        """Until none of it runs, on whichever node."""
        deadline = time.monotonic() + ENDED_SECONDS
        while (running := self._running()) and time.monotonic() < deadline:
            cluster.cancel(*running)
            time.sleep(0.5)

    def _running(self) -> list[str]:
        with contextlib.suppress(MachineryError):
            return cluster.steps(os.environ["SLURM_JOB_ID"], STEP)
        return []


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    argv = torchrun(sys.argv[1:], int(os.environ["SLURM_PROCID"]))
    os.execv(argv[0], argv)
