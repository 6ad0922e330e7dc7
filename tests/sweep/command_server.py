"""Forks commands from a process that has imported what they need: Hydra, MLflow, Matplotlib.

`python -m tests.sweep.command_server FD` serves the listening socket FD. Over a connection it is
told a module, arguments and an environment, and given descriptors for stdout and stderr; it answers
with a line that holds the command's process number, and one with its exit code. Each command is a
process of its own, which ends as one that Python started does.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from typing import Any

PRELOADED = ("sweep.cli.app", "hydra_plugins.sweep_plugins.launcher", "sweep.session.driver",
             "mlflow.store.tracking.sqlalchemy_store", "matplotlib.figure")  # fmt: skip
PR_SET_PDEATHSIG = 1


def main(listener: socket.socket) -> None:
    """Serve until the process that started this one ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    gc.disable()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            break
        connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wait_or_be(connection)


def wait_or_be(connection: socket.socket) -> None:
    """In one process wait for the command and tell how it ended; be the command in another."""
    data, files = b"", []
    while not data.endswith(b"\n"):
        piece, more, _, _ = socket.recv_fds(connection, 1 << 16, 2)
        if not piece:
            os._exit(1)
        data, files = data + piece, files + more
    pid = os.fork()
    if pid == 0:
        connection.close()
        be(json.loads(data), files)
        return
    connection.sendall(f"{pid}\n".encode())
    _, status = os.waitpid(pid, 0)
    connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def be(asked: dict[str, Any], files: list[int]) -> None:
    """Be `python -m module arguments`, with no input."""
    for file, standard in zip([os.open(os.devnull, os.O_RDONLY), *files], (0, 1, 2), strict=True):
        os.dup2(file, standard)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = [asked["module"], *asked["arguments"]]
    runpy.run_module(asked["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
