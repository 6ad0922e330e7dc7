"""A command of ours that is ended in order, with all that it started, before we go on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from sweep.revisions.git import environment

GRACE_SECONDS = 30.0  # for a case that is interrupted to end its trainer


def run(command: Sequence[str], cwd: Path, keep: bool = True) -> tuple[int, str]:
    """Its exit code, and what it printed; `keep=False` lets it print instead.

    In a session of its own: a Ctrl-C reaches us alone, and we pass it on.
    """
    process = subprocess.Popen(
        command,
        cwd=cwd,
        stdout=subprocess.PIPE if keep else None,
        text=True,
        env=environment(),
        start_new_session=True,
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        _end_group(process)
        raise
    return process.returncode, said or ""


def _end_group(process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            process.poll()
            os.killpg(process.pid, 0)
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
