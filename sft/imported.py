"""Which code runs: a digest of the trainer's files as they were when they were imported.

A server that forks ranks imports the trainer once. Files that change after that are not what its
ranks run, so the server notes their digests at once and its ranks inherit the notes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

PACKAGES = ("sft",)
LENGTH = 12
_noted: dict[str, str] = {}
"""File -> digest, of the modules that were imported when somebody last asked."""


def note(packages: Sequence[str] = PACKAGES) -> None:
    """Note the digests of the files imported so far, before they can change."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if name.partition(".")[0] in packages and path is not None and path not in _noted:
            _noted[path] = _digest(Path(path).read_bytes())


def digest(packages: Sequence[str] = PACKAGES) -> str:
    """Of all files of the packages: as imported, else as they would be imported now."""
    note(packages)
    files = (
        f"{name}\0{_noted.get(str(path)) or _digest(path.read_bytes())}"
        for name, path in _files(packages)
    )
    return _digest("\0".join(files).encode())


def _files(packages: Sequence[str]) -> Iterator[tuple[str, Path]]:
    for package in packages:
        root = Path(str(sys.modules[package].__file__)).parent
        for path in sorted(root.rglob("*.py")):
            yield f"{package}/{path.relative_to(root)}", path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:LENGTH]
