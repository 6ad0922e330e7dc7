"""A program under a supervisor (supervisor.py), which leaves nothing of it behind."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from sweep import processes

PROGRAM = Path(__file__).with_name("supervisor.py")
MARKERS = (processes.MARKER, processes.JOB_MARKER)


class Reported:
    """A process that somebody else started, who reports on it in lines over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self.pid: int | None = None  # until it is there
        self.returncode: int | None = None
        self._connection, self._rest = connection, b""

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        while self.returncode is None and self._is_readable():
            self._read()
        return self.returncode

    def wait(self) -> int:
        """The exit code, when it has ended."""
        while self.returncode is None:
            self._read()
        return self.returncode

    def _is_readable(self) -> bool:
        return bool(select.select([self._connection], [], [], 0)[0])

    def _read(self) -> bool:
        """Take what was reported, or its end, which is the process's if it had none; more comes?"""
        with contextlib.suppress(ConnectionError):
            if data := self._connection.recv(1 << 16):
                *lines, self._rest = (self._rest + data).split(b"\n")
                for line in lines:
                    self._take(line)
                return True
        if self.returncode is None:
            self._lost()
        return False

    def _take(self, line: bytes) -> None:
        raise NotImplementedError

    def _lost(self) -> None:
        """Whoever reported is gone, and the process with it."""
        self.returncode = -signal.SIGKILL


class Supervised(Reported):
    """As much of `subprocess.Popen` as a launch needs; `end` it in any case."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: IO[bytes],
        pass_fds: Sequence[int] = (),
        orphans: bool = False,
    ) -> None:
        """Raises FileNotFoundError for a program that is not there."""
        if shutil.which(argv[0], path=env.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self.stopped: list[str] = []  # the commands of processes that had to be killed
        marks = [f"{name}={env[name]}" for name in MARKERS if name in env]
        program = [sys.executable, "-I", "-S", str(PROGRAM), str(theirs.fileno()),
                   str(int(orphans)), *marks, "--", *argv]  # fmt: skip
        unmarked = {name: value for name, value in env.items() if name not in MARKERS}
        with theirs:
            self._supervisor = subprocess.Popen(
                program, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=unmarked, pass_fds=[theirs.fileno(), *pass_fds], start_new_session=True,
            )  # fmt: skip

    def kill(self) -> None:
        """Have all of it killed."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def end(self) -> None:
        """Kill all of it that is left; it is gone on return."""
        self.kill()
        while self._read():
            pass
        self._connection.close()
        self._supervisor.wait()

    def started(self) -> int | None:
        """The program's process number, once it has one; None if it never came to that."""
        while self.pid is None and self._read():
            pass
        return self.pid

    def _take(self, line: bytes) -> None:
        word, _, value = line.decode("utf-8", "replace").partition(" ")
        if word == "pid":
            self.pid = int(value)
        elif word == "exit":
            self.returncode = int(value)
        elif word == "stopped":
            self.stopped.append(value)
