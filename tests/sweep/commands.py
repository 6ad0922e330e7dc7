"""The command as a user runs it, with trainers that go wrong on request (dummy.py)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import tomllib
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

import psutil

ROOT = Path(__file__).resolve().parents[2]
DUMMY = Path(__file__).with_name("dummy.py")
DUMMY_TRAINER = ("trainer=command", "feature.compile=false")  # it compiles nothing
TRAINER = f'trainer.argv=["{{python}}","{DUMMY}","{{behaviour}}","{{output_dir}}","{{steps}}"]'


READ_AT_START = ("PYTHON", "LD_", "LANG", "LC_", "TZ", "HOME", "MPL", "MLFLOW", "OMP_", "PATH")


def sweep(
    *arguments: str, seconds: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python -m sweep` to its end, in the repository's folder.

    Forked from a process that has imported what it needs, unless it gets variables that Python or a
    library reads when it starts.
    """
    env = {**os.environ, "COLUMNS": "80", **environment}
    if not any(name.startswith(READ_AT_START) for name in environment):
        return _server().run("sweep", arguments, env, seconds)
    return subprocess.run(
        [sys.executable, "-m", "sweep", *arguments], capture_output=True, text=True, cwd=ROOT,
        timeout=seconds, env=env,
    )  # fmt: skip


@cache
def _server() -> Server:
    return Server()


class Server:
    """A running command_server.py, which ends with this process."""

    def __init__(self) -> None:
        self._address = f"\0sweep-tests-{uuid.uuid4().hex}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(self._address)
            listener.listen(64)
            subprocess.Popen(
                [sys.executable, "-m", "tests.sweep.command_server", str(listener.fileno())],
                cwd=ROOT, pass_fds=[listener.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def run(
        self, module: str, arguments: Sequence[str], env: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """`python -m module` to its end; as `subprocess.run`, raises TimeoutExpired."""
        asked = {"module": module, "arguments": list(arguments), "environment": dict(env)}
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
            tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors,
        ):  # fmt: skip
            connection.settimeout(seconds)
            connection.connect(self._address)
            data = json.dumps(asked).encode() + b"\n"
            sent = socket.send_fds(connection, [data], [out.fileno(), errors.fileno()])
            connection.sendall(data[sent:])
            answers = connection.makefile()
            pid = int(answers.readline())
            try:
                code = int(answers.readline())
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired([module, *arguments], seconds) from None
            said = [_whole(file) for file in (out, errors)]
        return subprocess.CompletedProcess([module, *arguments], code, *said)


def _whole(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


def command(
    name: str, *arguments: str, seconds: float = 300, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python -m sweep.<name>` to its end."""
    return subprocess.run(
        [sys.executable, "-m", f"sweep.{name}", *arguments], capture_output=True, text=True,
        cwd=cwd, timeout=seconds, env={**os.environ, "COLUMNS": "80", **environment},
    )  # fmt: skip


def console_script(folder: Path, python: str | Path = sys.executable) -> Path:
    """`trainer-sweep` in this folder, as pip makes it of pyproject.toml."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["trainer-sweep"].partition(":")
    path = folder / "trainer-sweep"
    path.write_text(
        f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    )
    path.chmod(0o755)
    return path


def processes_of(folder: Path) -> list[str]:
    lines = (
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    )
    return [line for line in lines if str(folder) in line]
