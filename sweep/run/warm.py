"""Servers that fork a trainer's ranks from a process that has imported what they need.

A sweep has one a program on its machine, started with it; its address reaches the jobs by their
environment. A job without one that answers starts its own, for the case: in the foreground, on
another machine, or when the sweep's has died. A server ends with the process that started it,
however that ends, and its launches end with it.

A server is any program that serves the listening socket whose descriptor is its last argument, as
`sft/warm/server.py` does: it takes torchrun's arguments, an environment and two files, and answers
with lines of JSON: `pid`, then `exit_code` and `cpu_seconds`, or `error`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep import processes, trainers
from sweep.errors import MachineryError
from sweep.schema import LaunchMode, Settings

SERVERS = "SWEEP_SERVERS"  # environment: address by program, as JSON
LOG = "server.log"
_TORCHRUN = ("-m", "torch.distributed.run")


def program_of(settings: Settings) -> list[str] | None:
    """The server that the case's launches are forked from; None where they start cold."""
    if settings.launch.mode is LaunchMode.cold:
        return None
    return trainers.of(settings).server(settings)


class Server:
    """A running server; its socket is in the abstract namespace, so nothing of it stays."""

    def __init__(self, program: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.address = f"sweep-{uuid.uuid4().hex}"
        blank = dict.fromkeys((processes.MARKER, processes.JOB_MARKER), "0" * 32)  # see take_over
        with _listening(self.address) as listener, log.open("ab") as out:
            self._process = subprocess.Popen(
                processes.dependent([*program, str(listener.fileno())]),
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env={**env, **blank}, pass_fds=[listener.fileno()], start_new_session=True,
            )  # fmt: skip
        self.pid = self._process.pid

    def stop(self) -> None:
        """End it, and every launch in it."""
        self._process.kill()
        self._process.wait()


class Forked:
    """A launcher that a server forked: as much of `subprocess.Popen` as its supervisor needs."""

    def __init__(
        self, address: str, argv: Sequence[str], env: Mapping[str, str], log: Path
    ) -> None:
        self.pid: int | None = None  # until the server has imported everything
        self.returncode: int | None = None
        self.cpu_seconds: float | None = None
        self.refused = ""  # why the server does not fork it
        self._log, self._said = log, b""
        self._connection = _connected(address)
        request = {"arguments": _torchrun_arguments(argv), "environment": dict(env)}
        with log.open("wb") as out:
            data = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(self._connection, [data], [out.fileno(), out.fileno()])
            self._connection.sendall(data[sent:])

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        while self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self._read()
        return self.returncode

    def wait(self) -> int:
        """The exit code, when it has ended."""
        while self.returncode is None:
            self._read()
        return self.returncode

    def kill(self) -> None:
        """SIGKILL, or if it has not started, no start."""
        if self.pid is None:
            self._ended(-signal.SIGKILL)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _read(self) -> None:
        with contextlib.suppress(ConnectionError):
            if said := self._connection.recv(1 << 16):
                *lines, self._said = (self._said + said).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
                return
        if self.returncode is None:
            reason = "the process that forks warm ranks has ended"
            self.refused = "" if self.pid else reason
            self._ended(-signal.SIGKILL, reason)

    def _take(self, said: dict[str, Any]) -> None:
        self.pid = said.get("pid", self.pid)
        self.cpu_seconds = said.get("cpu_seconds")
        if "error" in said:
            self.refused = said["error"]
            self._ended(1, self.refused)
        elif "exit_code" in said:
            self._ended(said["exit_code"])

    def _ended(self, code: int, reason: str = "") -> None:
        self.returncode = code
        self._connection.close()
        if reason:
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{reason}; launch.mode=cold does without it\n")


class Servers:
    """The servers of a sweep, one a program."""

    def __init__(
        self, programs: Iterable[Sequence[str]], env: Mapping[str, str], log: Path
    ) -> None:
        self._servers = {json.dumps(program): Server(program, env, log)
                         for program in {tuple(program) for program in programs}}  # fmt: skip

    def stop(self) -> None:
        """End them, and every launch in them."""
        for server in self._servers.values():
            server.stop()

    def addresses(self) -> dict[str, str]:
        """What a job's environment must hold, so that it finds them."""
        addresses = {program: server.address for program, server in self._servers.items()}
        return {SERVERS: json.dumps(addresses)}


@contextlib.contextmanager
def serving(
    program: Sequence[str], env: Mapping[str, str], log: Path, shared: bool = True
) -> Iterator[str]:
    """The address of the sweep's server for `program`, or of one that ends with this context."""
    address = json.loads(os.environ.get(SERVERS, "{}")).get(json.dumps(program))
    if shared and address is not None and _answers(address):
        yield address
        return
    server = Server(program, env, log)
    try:
        yield server.address
    finally:
        server.stop()


def _torchrun_arguments(argv: Sequence[str]) -> list[str]:
    if tuple(argv[1:3]) != _TORCHRUN:
        raise MachineryError(f"a warm launch is one of torchrun, not of {argv[0]}")
    return list(argv[3:])


def _listening(address: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("\0" + address)
    listener.listen(64)  # who connects before the server is ready waits
    return listener


def _connected(address: str) -> socket.socket:
    """A connection to a server of ours; OSError if there is none, or it is another user's."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect("\0" + address)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] != os.getuid():
            raise PermissionError(f"{address} is another user's")
    except OSError:
        connection.close()
        raise
    return connection


def _answers(address: str) -> bool:
    with contextlib.suppress(OSError):
        _connected(address).close()
        return True
    return False
