"""A program: the parent of all that a launch starts, which is killed when the launch is over.

    python -I -S supervisor.py CONTROL ORPHANS [NAME=VALUE ...] -- PROGRAM [ARGUMENT ...]

CONTROL is the descriptor of a socket. Whoever holds its other end wants PROGRAM to run: when that
is closed, by whatever end of the holder, everything is killed. What happens is written to it in
lines: `pid N`, `exit CODE`, and `stopped COMMAND` for each process that had to be killed.

The processes of PROGRAM come to no other parent than this one (PR_SET_CHILD_SUBREAPER), also those
in sessions of their own and with another environment. It is in a session of its own itself, and
NAME=VALUE (the markers of the launch) are in PROGRAM's environment alone: who kills the job's
process group, or all that carries a marker, does not hit it.

With ORPHANS=1 PROGRAM is a server of launches, each a subreaper as well: a process that comes to
this one is left over from a launch that has ended, and killed.

It is started before every launch, so it imports nothing that takes time.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
GRACE_SECONDS = 1.0  # for helpers that end by themselves once the program has
KILL_SECONDS = 10.0  # for what was killed to be gone
LOOK_SECONDS = 1.0  # between two looks at what came to us
SHOWN = 200  # characters of a command line
_libc = ctypes.CDLL(None)


class Supervisor:
    """One program, and all that came of it."""

    def __init__(self, control: int, orphans: bool) -> None:
        self._control, self._orphans = control, orphans
        self._program = 0
        self._code: int | None = None  # the program's exit code, negative for a signal

    def start(self, marks: list[str], argv: list[str]) -> None:
        """Fork the program."""
        ourselves = os.getpid()
        self._program = os.fork()
        if self._program == 0:
            _become(marks, argv, ourselves)
        os.closerange(3, self._control)  # what was passed on to the program
        os.closerange(self._control + 1, 1 << 16)
        self._tell(f"pid {self._program}")

    def watch(self) -> None:
        """Until the program has ended, or nobody wants it any more."""
        ended = os.pidfd_open(self._program)
        while self._code is None:
            ready, _, _ = select.select([self._control, ended], [], [], LOOK_SECONDS)
            if self._control in ready:
                return
            self._reap()
            if self._orphans:
                self._kill(self._came_to_us())
        os.close(ended)
        deadline = time.monotonic() + GRACE_SECONDS
        while self._reap() and time.monotonic() < deadline:
            time.sleep(0.02)

    def end(self) -> None:
        """Kill what is left, until nothing is; tell what that was."""
        told: set[int] = set()
        deadline = time.monotonic() + KILL_SECONDS
        while self._reap() and time.monotonic() < deadline:
            left = _below(os.getpid())
            for pid in sorted(left - told - ({self._program} if self._code is None else set())):
                self._tell(f"stopped {_command(pid)}")
            told |= left
            self._kill(left)
            time.sleep(0.01)

    def _reap(self) -> bool:
        """Take the exit codes of what has ended; whether anything is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                self._code = os.waitstatus_to_exitcode(status)
                self._tell(f"exit {self._code}")

    def _came_to_us(self) -> set[int]:
        parents = _parents()
        came = {pid for pid, parent in parents.items() if parent == os.getpid()} - {self._program}
        return came.union(*(_below(pid, parents) for pid in came)) if came else came

    def _kill(self, pids: set[int]) -> None:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # it has just ended, or is another user's
                continue

    def _tell(self, line: str) -> None:
        try:
            os.write(self._control, line.encode("utf-8", "backslashreplace") + b"\n")
        except OSError:  # nobody listens any more
            return


def _become(marks: list[str], argv: list[str], parent: int) -> None:
    """Be the program, in a session of its own, killed with us; never returns."""
    try:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, programs do not
            signal.signal(number, signal.SIG_DFL)
        os.environ.update((name, value) for name, _, value in (m.partition("=") for m in marks))
        os.execvp(argv[0], argv)
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _parents() -> dict[int, int]:
    """Process -> its parent, of all that have not ended."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                parents[int(name)] = int(fields[1])
    return parents


def _below(root: int, parents: dict[int, int] | None = None) -> set[int]:
    """Every process that came of `root`."""
    parents = _parents() if parents is None else parents
    below: set[int] = set()
    level = {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level} - below
        below |= level
    return below


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").replace("\0", " ").split()
    except OSError:
        words = []
    return " ".join(words)[:SHOWN] or f"process {pid}"


def main() -> None:
    """Run one program to its end."""
    control, orphans, *rest = sys.argv[1:]
    marks, argv = rest[: rest.index("--")], rest[rest.index("--") + 1 :]
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        if signal.getsignal(number) is not signal.SIG_IGN:  # which the program is to inherit
            signal.signal(number, lambda *_: None)
    os.set_inheritable(int(control), False)
    supervisor = Supervisor(int(control), orphans == "1")
    supervisor.start(marks, argv)
    try:
        supervisor.watch()
    finally:
        supervisor.end()


if __name__ == "__main__":
    main()
