"""What a result depends on and cannot be seen in it: versions, host, commit."""

from __future__ import annotations

import platform
import socket
import subprocess
from importlib import metadata
from pathlib import Path

PACKAGES = ("torch", "transformers", "accelerate", "mlflow", "hydra-core", "trainer-sweep")


def environment(device: str) -> dict[str, str]:
    """Versions, host and device; packages are asked for their metadata, not imported."""
    return {
        **{name: version for name in PACKAGES if (version := _version(name))},
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "device": device,
    }


def commit(folder: Path) -> dict[str, str]:
    """The git commit of the code in `folder`, and whether tracked files differ from it."""
    sha = _git(folder, "rev-parse", "HEAD")
    if not sha:
        return {"git_sha": "unknown", "git_dirty": "unknown"}
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"git_sha": sha, "git_dirty": "true" if changed else "false"}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
