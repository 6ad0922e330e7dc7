"""python -m sft.warm.server FD: start `torchrun -m sft` repeatedly, its ranks forked from here.

Importing torch, transformers and a model's code costs each rank of torchrun more than a tiny
model's training. This process has them imported. Over the listening Unix socket FD it is told what
torchrun would be: arguments, an environment, and descriptors to write to. For each such request it
forks a launcher, which runs torch's own elastic agent with the start method `fork`: ranks, logs,
error files and the summary of a failure are torchrun's.

A rank is a process of its own, with the environment asked for. CUDA cannot be used on both sides of
a fork, so nothing here may touch it, and no launcher is forked if something did. A launch ends when
whoever asked closes the connection; all of them end with this process, and it with its parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import traceback
import uuid
from collections.abc import Mapping, Sequence
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # before anything asks whether there is a GPU
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # which does not touch it
    os.environ["TORCH_WARM_POOL"] = "0"  # inductor's compiling processes are the ranks' own
    gc.disable()  # what is imported stays: looking through it again and again is a quarter of it

import torch
from torch.distributed import run as torchrun
from torch.distributed.elastic.rendezvous import dynamic_rendezvous
from torch.distributed.launcher.api import elastic_launch

from sft.warm import preload

NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOGGING = ("TORCH_LOGS", "TORCH_TRACE", "TORCH_DTRACE", "TORCH_COMPILE_DEBUG")
CUDA_DEVICE = "/dev/nvidia-uvm"
FORK_SECONDS = 300.0  # for the other ranks of a launch to be forked
_libc = ctypes.CDLL(None)
_libc.getenv.restype = ctypes.c_void_p


class Server:
    """Forks a launcher for each connection and tells how it ended."""

    def __init__(self, listener: socket.socket) -> None:
        self._selector = selectors.DefaultSelector()
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def serve(self) -> None:
        """Until this process is ended."""
        while True:
            for key, _ in self._selector.select():
                key.data()

    def _accept(self) -> None:
        """Wait for what a client has to say beside the others, for as long as it is silent."""
        connection, _ = self._listener.accept()
        request = Request(connection)

        def more() -> None:
            try:
                if not request.receive():
                    return
                self._selector.unregister(connection)
                connection.setblocking(True)
                self._start(connection, request.asked(), request.files)
            except (OSError, ValueError):  # it has gone, or only looked whether we are there
                with contextlib.suppress(KeyError, ValueError):
                    self._selector.unregister(connection)
                connection.close()
            request.close_files()

        self._selector.register(connection, selectors.EVENT_READ, more)

    def _start(self, connection: socket.socket, asked: dict[str, Any], files: list[int]) -> None:
        if "sft" in asked["arguments"]:
            preload.model_code(Path(asked["arguments"][-1]))
        if touched := cuda_was_touched():  # as flash-linear-attention does when it is imported
            answer(connection, error=f"no rank can be forked: {touched}")
            connection.close()
            return
        gc.freeze()  # what is imported is not looked through, and so not copied, in every rank
        pid = os.fork()
        if pid == 0:
            self._selector.close()
            self._listener.close()
            connection.close()
            become_launcher(asked["arguments"], asked["environment"], files)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # as it does itself, whichever comes first
        self._watch(connection, pid)

    def _watch(self, connection: socket.socket, pid: int) -> None:
        ended = os.pidfd_open(pid)

        def conclude() -> None:
            self._selector.unregister(ended)
            os.close(ended)
            _, status, usage = os.wait4(pid, 0)
            answer(
                connection,
                exit_code=os.waitstatus_to_exitcode(status),
                cpu_seconds=usage.ru_utime + usage.ru_stime,
            )
            with contextlib.suppress(KeyError):
                self._selector.unregister(connection)
            connection.close()

        def abandon() -> None:
            self._selector.unregister(connection)  # readable: closed by the other side
            kill_group(pid)

        self._selector.register(ended, selectors.EVENT_READ, conclude)
        self._selector.register(connection, selectors.EVENT_READ, abandon)
        answer(connection, pid=pid)


class Request:
    """A line of JSON, in as many pieces as it comes, and the descriptors that come with it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.line = connection, b""
        self.files: list[int] = []

    def receive(self) -> bool:
        """Take the piece that is there; returns whether it was the last.

        Raises PermissionError if another user sends it.
        """
        credentials = self.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        if struct.unpack("3i", credentials)[1] != os.getuid():
            raise PermissionError("another user's process")
        piece, files, _, _ = socket.recv_fds(self.connection, 1 << 16, 2)
        self.line += piece
        self.files += files
        return not piece or self.line.endswith(b"\n")

    def asked(self) -> dict[str, Any]:
        """What is asked for; raises ValueError if that is nothing."""
        request: dict[str, Any] = json.loads(self.line)
        return request

    def close_files(self) -> None:
        """Let go of the descriptors, which a launcher has copies of."""
        for file in self.files:
            os.close(file)
        self.files = []


def answer(connection: socket.socket, **said: Any) -> None:
    """Send a line of JSON to whoever may be gone."""
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(said).encode() + b"\n")


def cuda_was_touched() -> str | None:
    """Why a fork could not use CUDA; None if it can.

    The driver holds `CUDA_DEVICE` open from its first call on (`cuInit`), whoever made it and
    whether or not torch noticed; asking through NVML does not open it.
    """
    if torch.cuda.is_initialized():
        return "torch has initialised CUDA in the process to fork from"
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(file.readlink()).startswith(CUDA_DEVICE):
                return "the CUDA driver is in use in the process to fork from"
    return None


def become_launcher(
    arguments: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
) -> None:
    """Be what torchrun is when it is started with these; never returns."""
    code = 1
    try:
        end_with_parent()
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1)  # a daemon of this launch is no other's
        os.setpgid(0, 0)
        for file, standard in zip(files, (1, 2), strict=True):
            os.dup2(file, standard)
        imported_with = log_settings()
        take_over(environment)
        if log_settings() != imported_with:
            torch._logging._internal._init_logs()
        launch(arguments)
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does on its last line
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def launch(arguments: Sequence[str]) -> None:
    """Run torchrun with these arguments, but for the start of ranks."""
    options = torchrun.parse_args(arguments)
    if options.standalone:
        options.rdzv_backend, options.rdzv_endpoint = "c10d", "localhost:0"
        options.rdzv_id = uuid.uuid4().hex
    asked = os.environ.get(NVML_CHECK)
    os.environ[NVML_CHECK] = "1"  # torchrun looks for GPUs too
    config, _, _ = torchrun.config_from_args(options)
    config.start_method = "fork"
    all_forked = multiprocessing.get_context("fork").Barrier(config.nproc_per_node)
    dynamic_rendezvous.get_method_name = calling
    program = [options.training_script, *options.training_script_args]
    elastic_launch(config, rank)(all_forked, asked, options.module, *program)


def calling(depth: int = 2) -> str:
    """The name of the function `depth` calls up, for the rendezvous's records.

    torch's own reads the source of every frame for it, and for frames without a file looks through
    all modules: a tenth of a launch.
    """
    return sys._getframe(depth).f_code.co_name


def rank(
    all_forked: Barrier, nvml_check: str | None, is_module: bool, program: str, *arguments: str
) -> None:
    """Be `python [-m] program arguments` in a process that the agent has forked.

    It waits for the last of them: a store that answers the first rank holds locks of the C library
    in a thread of the agent, and a rank forked at that moment would wait for them forever.
    """
    end_with_parent()
    all_forked.wait(FORK_SECONDS)
    del os.environ[NVML_CHECK]
    if nvml_check is not None:
        os.environ[NVML_CHECK] = nvml_check
    if threads := os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(int(threads))
    sys.argv = [program, *arguments]
    try:
        if is_module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except Exception:
        traceback.print_exc()  # the agent keeps it to itself
        raise


def log_settings() -> dict[str, str]:
    """What of the environment torch's logging is set up by, when torch is imported."""
    return {name: value for name, value in os.environ.items() if name.startswith(LOGGING)}


def take_over(environment: Mapping[str, str]) -> None:
    """Have this environment, and show it in /proc as far as it fits over the one we began with.

    /proc/PID/environ is what a process was started with. Whoever looks for processes by a variable
    gives it a value of the same length when starting the server.
    """
    for name, value in environment.items():
        if len(os.fsencode(os.environ.get(name, ""))) == len(os.fsencode(value)):
            place = _libc.getenv(os.fsencode(name))
            ctypes.memmove(place, os.fsencode(value), len(os.fsencode(value)))
    os.environ.clear()
    os.environ.update(environment)


def end_with_parent() -> None:
    """Be killed when the process that forked us ends, however it does."""
    parent = os.getppid()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def kill_group(leader: int) -> None:
    """Kill a launcher's whole group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def main() -> None:
    """Serve the socket that was handed over."""
    preload.trainer()
    gc.enable()
    Server(socket.socket(fileno=int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
