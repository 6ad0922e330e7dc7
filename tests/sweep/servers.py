"""Real services on the loopback: an MLflow server, and PostgreSQL from Debian's packages."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

START_SECONDS = 120.0


@contextmanager
def mlflow_server(backend: str, folder: Path) -> Iterator[str]:
    """One process over the database `backend`, with artifacts in `folder`; its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
               "--workers", "1", "--backend-store-uri", backend,
               "--artifacts-destination", str(folder / "kept")]  # fmt: skip
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT,
                                  env={**os.environ, **quiet}, start_new_session=True)  # fmt: skip
    try:
        _wait_for(address, server, folder / "server.log")
        yield address
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@contextmanager
def postgresql() -> Iterator[str]:
    """A cluster of its own in a temporary folder; the URI of its database."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs:
        missing("PostgreSQL (Debian: postgresql)")
    folder, port = Path(tempfile.mkdtemp(prefix="pg-")), free_port()
    if os.geteuid() == 0:  # which PostgreSQL refuses to run as
        shutil.chown(folder, "postgres")
    options = f"-F -p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
    control = [str(programs[-1] / "pg_ctl"), "-D", str(folder / "data"), "-w"]
    try:
        _as_postgres([str(programs[-1] / "initdb"), "-D", str(folder / "data"), "-A", "trust",
                      "-U", "postgres", "--no-sync"])  # fmt: skip
        _as_postgres([*control, "-l", str(folder / "log"), "-o", options, "start"])
        try:
            yield f"postgresql+psycopg2://postgres@127.0.0.1:{port}/postgres"
        finally:
            _as_postgres([*control, "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def missing(service: str) -> None:
    """CI installs every service; elsewhere a test without its service is skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{service} is missing")
    pytest.skip(f"{service} is not installed")


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _as_postgres(command: Sequence[str]) -> None:
    prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    subprocess.run([*prefix, *command], check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=120)


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the MLflow server does not answer:\n{log.read_text()[-3000:]}")
