"""Checkpoints kept between runs, under a key of everything that determines their bytes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import suppress
from functools import cache as remember
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from . import manifest
from .errors import TinyModelError
from .model import check_scale
from .registry import get
from .writer import check_seed, write

VARIABLE = "TINY_MODELS_CACHE"
LOCK_SECONDS = 600


def default_cache() -> Path:
    """`$TINY_MODELS_CACHE`, or `~/.cache/tiny_models`; TinyModelError for a user without a home."""
    try:
        return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "tiny_models")
    except RuntimeError:
        raise TinyModelError(f"this user has no home folder: set {VARIABLE}") from None


def ensure(
    arch: str,
    scale: str = "nano",
    seed: int = 0,
    cache: str | os.PathLike[str] | None = None,
) -> Path:
    """The folder of the checkpoint in the cache; written if it is missing or damaged.

    Several processes may ask at once: one writes, the others wait. Every file is checked against
    its digest, so that a damaged one is never handed out. TinyModelError as for `write`.
    """
    from filelock import FileLock, Timeout

    get(arch)
    check_scale(scale)
    check_seed(seed)
    root = Path(os.path.abspath(cache or default_cache()))  # noqa: PTH100 - keep links as given
    folder = root / f"{arch}-{scale}-seed{seed}-{key(arch, scale, seed)[:16]}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / f".{folder.name}.lock", timeout=LOCK_SECONDS):
            return _checked(folder, arch, scale, seed)
    except Timeout:
        raise TinyModelError(
            f"another process has held {root} for {LOCK_SECONDS} s: end it, or set {VARIABLE}"
        ) from None
    except OSError as error:
        with suppress(OSError):  # a cache that we may only read will do if the checkpoint is there
            if folder.is_dir() and manifest.problem(folder) is None:
                return folder
        raise TinyModelError(
            f"cannot use the cache {root} ({error.strerror or error}): set {VARIABLE} to another"
        ) from error


def key(arch: str, scale: str, seed: int) -> str:
    """Digest of what determines the bytes: the request, this package's code and data, versions."""
    facts = {
        "arch": arch,
        "scale": scale,
        "seed": seed,
        "package": package_digest(),
        "versions": manifest.versions(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


@remember
def package_digest() -> str:
    """Digest of the package's own files, configurations included; imports no torch."""
    total = hashlib.sha256()
    for path, content in sorted(_files(resources.files(__package__), "")):
        total.update(f"{path}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def _files(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    files = []
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name != "__pycache__":
            files += _files(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith((".py", ".txt")):
            files.append((prefix + entry.name, entry.read_bytes()))
    return files


def _checked(folder: Path, arch: str, scale: str, seed: int) -> Path:
    if folder.exists() and manifest.problem(folder) is None:
        return folder
    for left in folder.parent.glob(f".{folder.name}.*/"):  # left by a killed build
        shutil.rmtree(left)
    if folder.exists():  # it may have lost its manifest, and `write` would refuse to replace it
        shutil.rmtree(folder)
    return write(arch, scale, seed, folder)
