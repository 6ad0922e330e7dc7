"""A digest of each file of a checkpoint, as `sha256sum` writes them.

By hand: `cd step_5 && sha256sum -c SHA256SUMS`. The ranks share the reading; each knows the result.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from sft.errors import ConfigError
from sft.ranks import Ranks

FILE = "SHA256SUMS"


def write(folder: Path, ranks: Ranks) -> None:
    """Write the digests of all files in a folder; what has them is whole."""
    ours = digests(folder, ranks)
    if ranks.rank == 0:
        lines = [f"{digest}  {name}\n" for name, digest in ours.items()]
        (folder / FILE).write_text("".join(lines), encoding="utf-8")


def check(folder: Path, ranks: Ranks) -> None:
    """Read all files again; raises `ConfigError`, on every rank, where one is not as it was."""
    ours = digests(folder, ranks)
    written = read(folder / FILE)
    for name in sorted(ours.keys() | written.keys()):
        if name not in ours:
            raise ConfigError(f"{folder} lacks {name}; resume from another step")
        if ours[name] != written.get(name):
            raise ConfigError(
                f"{folder / name} is not as it was saved: its digest is not the one in {FILE}; "
                "resume from another step"
            )


def digests(folder: Path, ranks: Ranks) -> dict[str, str]:
    """The digest of each file but of the digests' own, by name; "" for one that is unreadable."""
    names = sorted(path.name for path in folder.iterdir() if path.name != FILE)
    mine = {name: digest(folder / name) for name in names[ranks.rank :: ranks.world_size]}
    return dict(sorted((name, d) for rank in ranks.gather(mine) for name, d in rank.items()))


def digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def read(path: Path) -> dict[str, str]:
    """The digests of a file by the names in it."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
