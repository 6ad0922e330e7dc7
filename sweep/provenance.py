"""What a result depends on and cannot be seen in it: versions, host, commit."""

from __future__ import annotations

import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from sweep.case.machine import gpu

SHA_LENGTH = 40
PACKAGES = ("torch", "transformers", "accelerate", "mlflow", "hydra-core", "trainer-sweep")


LIBRARIES = ("torch", "transformers", "accelerate")
"""With another version of these, losses may move by nobody's fault."""

COMPARED = (
    *LIBRARIES,
    "git_sha",
    "git_dirty",
    "trainer-sweep",
    "python",
    "host",
    "device",
    "gpu",
    "gpu_driver",
)
"""What may explain that two nights differ, the likeliest first."""


def moved(
    before: Mapping[str, str], now: Mapping[str, str], names: Sequence[str] = COMPARED
) -> str:
    """`torch 2.12.0 > 2.13.0, git_sha 1a2b3c4 > 5d6e7f8`; empty if nothing moved."""
    pairs = ((name, before.get(name, "none"), now.get(name, "none")) for name in names)
    return ", ".join(f"{name} {_short(a)} > {_short(b)}" for name, a, b in pairs if a != b)


def environment(device: str) -> dict[str, str]:
    """Versions, host and device; packages are asked for their metadata, not imported."""
    return {
        **{name: installed for name in PACKAGES if (installed := version(name))},
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "device": device,
        **(gpu() if device == "cuda" else {}),
    }


def of_this_run(device: str) -> dict[str, str]:
    """All of it, for a command started in the present folder."""
    return environment(device) | commit(Path.cwd())


def commit(folder: Path) -> dict[str, str]:
    """The git commit of the code in `folder`, and whether tracked files differ from it."""
    sha = _git(folder, "rev-parse", "HEAD")
    if not sha:
        return {"git_sha": "unknown", "git_dirty": "unknown"}
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"git_sha": sha, "git_dirty": "true" if changed else "false"}


def _short(value: str) -> str:
    is_sha = len(value) == SHA_LENGTH and set(value) <= set("0123456789abcdef")
    return value[:9] if is_sha else value


def version(package: str) -> str | None:
    """Of an installed package, which is not imported for it; None if there is none."""
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
