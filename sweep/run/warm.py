"""Servers that fork a trainer's ranks from a process that has imported what they need.

A sweep has one a program on its machine, started with it; its address reaches the jobs by their
environment. A job without one that answers starts its own, for the case: in the foreground, on
another machine, or when the sweep's has died. A server is under a supervisor: it ends with the
process that started it, however that ends, and all that its launches left ends with it.

A server is any program that serves the listening socket whose descriptor is its last argument, as
`sft/warm/server.py` does: it takes torchrun's arguments, an environment and two files, and answers
with lines of JSON: `pid`, then `exit_code` and `cpu_seconds`, or `error`. The launchers that it
forks are subreapers: what comes to the supervisor is left over from one that has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep import provenance, trainers
from sweep.errors import MachineryError
from sweep.run.supervised import MARKERS, Reported, Supervised
from sweep.schema import LaunchMode, Settings

SERVERS = "SWEEP_SERVERS"  # environment: address by program, as JSON
COMMIT = "SWEEP_SERVERS_COMMIT"  # likewise: git_sha and git_dirty of what the servers imported
LOG = "server.log"
ANSWER_SECONDS = 120.0  # for a server to fork a launcher: the first waits for its imports
_TORCHRUN = ("-m", "torch.distributed.run")


def program_of(settings: Settings) -> list[str] | None:
    """The server that the case's launches are forked from; None where they start cold."""
    if settings.launch.mode is LaunchMode.cold:
        return None
    return trainers.of(settings).server(settings)


def commit_of(settings: Settings) -> dict[str, str] | None:
    """The commit of what the sweep's server imported for such a case; None without that server."""
    is_shared = program_of(settings) is not None and not settings.trainer.env
    known = os.environ.get(COMMIT) if is_shared else None
    return None if known is None else dict(json.loads(known))


class Server:
    """A running server; its socket is in the abstract namespace, so nothing of it stays."""

    def __init__(self, program: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.address = f"sweep-{uuid.uuid4().hex}"
        blank = dict.fromkeys(MARKERS, "0" * 32)  # see take_over
        with _listening(self.address) as listener, log.open("ab") as out:
            self._process = Supervised(
                [*program, str(listener.fileno())], {**env, **blank}, out,
                pass_fds=[listener.fileno()], orphans=True,
            )  # fmt: skip

    @property
    def pid(self) -> int | None:
        """Its process number; None if it could not be started."""
        return self._process.started()

    def stop(self) -> None:
        """End it, and every launch in it."""
        self._process.end()


class Forked(Reported):
    """A launcher that a server forked: as much of `subprocess.Popen` as a launch needs."""

    def __init__(
        self, address: str, argv: Sequence[str], env: Mapping[str, str], log: Path
    ) -> None:
        super().__init__(_connected(address))
        self.cpu_seconds: float | None = None
        self.refused = ""  # why the server does not fork it
        self.stopped: list[str] = []
        self._log = log
        self._answer_by = time.monotonic() + ANSWER_SECONDS
        request = {"arguments": _torchrun_arguments(argv), "environment": dict(env)}
        with log.open("wb") as out:
            data = json.dumps(request).encode() + b"\n"
            sent = socket.send_fds(self._connection, [data], [out.fileno(), out.fileno()])
            self._connection.sendall(data[sent:])
        self._connection.settimeout(None)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        code = super().poll()
        if code is None and self.pid is None and time.monotonic() > self._answer_by:
            self.refused = f"the process that forks warm ranks is silent for {ANSWER_SECONDS:g} s"
            self._ended(1, self.refused)
        return self.returncode

    def end(self) -> None:
        """The server ends what is left of it once the connection is closed."""
        self._connection.close()

    def kill(self) -> None:
        """SIGKILL, or if it has not started, no start."""
        if self.pid is None:
            self._ended(-signal.SIGKILL)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _lost(self) -> None:
        reason = "the process that forks warm ranks has ended"
        self.refused = "" if self.pid else reason
        self._ended(-signal.SIGKILL, reason)

    def _take(self, line: bytes) -> None:
        said: dict[str, Any] = json.loads(line)
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
        self._commit = provenance.commit(provenance.ROOT)
        self._servers = {
            json.dumps(program): Server(program, env, log)
            for program in {tuple(program) for program in programs}
        }

    def stop(self) -> None:
        """End them, and every launch in them."""
        for server in self._servers.values():
            server.stop()

    def addresses(self) -> dict[str, str]:
        """What a job's environment must hold, so that it finds them."""
        addresses = {program: server.address for program, server in self._servers.items()}
        return {SERVERS: json.dumps(addresses), COMMIT: json.dumps(self._commit)}


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
        connection.settimeout(ANSWER_SECONDS)  # one that serves nobody has a full queue
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
