"""`tiny_model.json`: what a checkpoint is, and the digest of each of its files."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

NAME = "tiny_model.json"
WEIGHTS = ".safetensors"
LIBRARIES = ("safetensors", "tokenizers", "torch", "transformers")


def versions() -> dict[str, str]:
    """Versions of everything that can change a checkpoint's bytes."""
    machine = f"{platform.machine()} {_vectors()}".strip()
    return {name: version(name) for name in LIBRARIES} | {"machine": machine}


def _vectors() -> str:
    # Torch draws other normal numbers with AVX2 than without it.
    if forced := os.environ.get("ATEN_CPU_CAPABILITY"):
        return forced
    try:
        return "avx2" if " avx2 " in Path("/proc/cpuinfo").read_text(encoding="utf-8") else ""
    except OSError:
        return ""


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write(folder: Path, about: dict[str, Any]) -> None:
    """Write the manifest of the files in `folder`."""
    files = {path.name: digest(path) for path in sorted(folder.iterdir())}
    text = json.dumps(about | {"versions": versions(), "files": files}, indent=2, sort_keys=True)
    (folder / NAME).write_text(text + "\n", encoding="utf-8")


def read(folder: Path) -> dict[str, Any] | None:
    """The manifest of `folder`, or None if it has no readable one."""
    try:
        manifest = json.loads((folder / NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    is_one = isinstance(manifest, dict) and isinstance(manifest.get("files"), dict)
    return manifest if is_one else None


def content_digest(folder: Path) -> str | None:
    """A digest of weights and configuration, alike wherever they are equal; None: no manifest.

    Tokenizers are left out, and so is the version of transformers that wrote the configuration.
    """
    manifest = read(folder)
    if manifest is None:
        return None
    weights = {name: value for name, value in manifest["files"].items() if name.endswith(WEIGHTS)}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config.pop("transformers_version", None)
    text = json.dumps([weights, config], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def problem(folder: Path) -> str | None:
    """What is wrong with the checkpoint in `folder`, or None if every file is as written."""
    manifest = read(folder)
    if manifest is None:
        return f"{NAME} is missing or unreadable"
    for name, expected in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if digest(path) != expected:
            return f"{name} is damaged"
    return None
