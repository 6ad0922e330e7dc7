"""What a result depends on and cannot be seen in it: versions, host, commit."""

from __future__ import annotations

import platform
import socket
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path

from sweep.case.identity import digest
from sweep.case.machine import gpu
from sweep.files import ConfDirs

SHA_LENGTH = 40
PACKAGES = ("torch", "transformers", "accelerate", "mlflow", "hydra-core", "trainer-sweep")


LIBRARIES = ("torch", "transformers", "accelerate")
"""With another version of these, losses may move by nobody's fault."""

COMPARED = (
    *LIBRARIES,
    "trainer_code",  # the trainer's files, as it imported them
    "git_sha",
    "git_dirty",
    "trainer-sweep",
    "sweep_code",  # our own files
    "tiny_models_code",
    "thresholds",
    "known_failures",
    "python",
    "host",
    "device",
    "gpu",
    "gpu_driver",
)
"""What may explain that two nights differ, the likeliest first."""

OF_TRAINER = ("trainer_code", "git_sha", "git_dirty")
"""Which code of the trainer ran."""

RULES = {
    "thresholds": ("thresholds.yaml", "calibrated.yaml"),
    "known_failures": ("known_failures.yaml", "known_graph_breaks.yaml"),
}
"""The files that a verdict follows from besides the facts."""

CODE = ("sweep", "sft", "hf_sft", "tiny_models", "hydra_plugins", "conf")
"""What of this project's source tree runs in a case."""

ROOT = Path(__file__).resolve().parent.parent
"""Where this project's packages are: its source tree, or where it was installed."""

UNKNOWN = {"git_sha": "unknown", "git_dirty": "unknown"}


def moved(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """`torch 2.12.0 > 2.13.0`, `git_sha 1a2b3c4 > 5d6e7f8`; empty if nothing moved."""
    pairs = ((name, before.get(name, "none"), now.get(name, "none")) for name in COMPARED)
    return [f"{name} {_short(a)} > {_short(b)}" for name, a, b in pairs if a != b]


def environment(device: str) -> dict[str, str]:
    """Versions, host and device; packages are asked for their metadata, not imported."""
    return {
        **{name: installed for name in PACKAGES if (installed := version(name))},
        "python": platform.python_version(),
        "host": socket.gethostname(),
        "device": device,
        **(gpu() if device == "cuda" else {}),
    }


def rules(config_dir: str | None) -> dict[str, str]:
    """Digests of thresholds and known failures, one's own in `config_dir` included."""
    conf = ConfDirs.having(config_dir)
    return {name: _digest_of(conf.files(*files)) for name, files in RULES.items()}


@cache
def own_code() -> dict[str, str]:
    """Digests of our files: of what plans and judges, and of what makes checkpoints."""
    return {
        f"{name}_code": _digest_of(sorted((ROOT / name).rglob("*.py")))
        for name in ("sweep", "tiny_models")
    }


NOT_CODE = (":(exclude,glob)**/__pycache__/**",)  # Python leaves it where nothing is ignored


def commit(folder: Path) -> dict[str, str]:
    """The git commit of the code in `folder`, and whether that code is another than the commit's.

    Code that is not tracked is in no commit, so that its sha is unknown.
    """
    paths = [name for name in CODE if (ROOT / name).is_dir()] if folder == ROOT else ["."]
    sha = _git(folder, "rev-parse", "HEAD")
    if not sha:
        return UNKNOWN
    changed = _git(
        folder, "status", "--porcelain", "--untracked-files=all", "--", *paths, *NOT_CODE
    )
    if not _git(folder, "ls-files", "--", *paths):
        return UNKNOWN | ({"git_dirty": "true"} if changed else {})
    return {"git_sha": sha, "git_dirty": "true" if changed else "false"}


def toplevel(folder: Path) -> Path | None:
    """The top of the git working tree that the folder is in; None if it is in none."""
    top = _git(folder, "rev-parse", "--show-toplevel")
    return Path(top) if top else None


def _digest_of(paths: Sequence[Path]) -> str:
    """Of files with their names, in that order; one that is not there is left out."""
    contents = [path.name.encode() + b"\0" + path.read_bytes() for path in paths if path.is_file()]
    return digest(b"\0".join(contents))


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
