"""Where `conf/` is, and writing a file so that a reader sees all of it or nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.errors import RequestError


def conf_dir() -> Path:
    """The folder of configuration: inside the installed package, or next to it in a source tree."""
    here = Path(__file__).resolve().parent
    installed = here / "conf"
    return installed if installed.is_dir() else here.parent / "conf"


def config_dir_of(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The folder of one's own (--config-dir) in a command line, and the rest; RequestError."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config-dir", "-cd")
    try:
        parsed, rest = parser.parse_known_args(list(argv))
    except argparse.ArgumentError:
        raise RequestError("--config-dir: name the folder, as in --config-dir FOLDER") from None
    return parsed.config_dir, rest


@dataclass(frozen=True)
class ConfDirs:
    """The folders of configuration: the tool's, and the user's (--config-dir) if there is one.

    A command makes it from its arguments and passes it on; a file of the user's comes last.
    """

    own: Path | None = None
    shipped: Path = field(default_factory=conf_dir)

    @classmethod
    def having(cls, own: str | None) -> ConfDirs:
        """`conf/` and the folder that --config-dir names; None: `conf/` alone."""
        return cls(None if own is None else Path(own).absolute())

    def files(self, *names: str) -> list[Path]:
        """The files of these names, folder by folder; all but the first may be missing."""
        paths = [folder / name for folder in self._folders for name in names]
        return [path for path in paths if path == paths[0] or path.is_file()]

    def files_of(self, group: str) -> list[Path]:
        """The files of a group of the configuration, as `arch`."""
        return [
            path for folder in self._folders for path in sorted((folder / group).glob("*.yaml"))
        ]

    def choices_of(self, group: str) -> list[str]:
        """The names in a group of the configuration."""
        return sorted({path.stem for path in self.files_of(group)})

    @property
    def _folders(self) -> list[Path]:
        return [self.shipped] if self.own is None else [self.shipped, self.own]


def inside(folder: Path, name: str) -> Path:
    """The path of `name` in `folder`; raises RequestError if it leads out of it, or nowhere.

    For every name that comes from a store, a file of results or a trainer.
    """
    path = os.path.normpath(folder / name) if name.isprintable() else ""
    top = os.path.normpath(folder)
    if path in ("", top) or not Path(path).is_relative_to(top):
        raise RequestError(f"{name!r} names nothing inside {folder}")
    return folder / name


def is_inside(folder: Path, name: str) -> bool:
    """Whether `inside` accepts the name."""
    try:
        inside(folder, name)
    except RequestError:
        return False
    return True


def write_text(path: Path, text: str) -> None:
    """Write by rename: whoever is killed meanwhile leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        error.filename = str(path)  # a full disk names none
        raise


def write_json(path: Path, value: Any) -> None:
    """`write_text` of indented JSON."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def tail(path: Path, lines: int = 25, limit: int = 65536) -> str:
    """The last lines of a log; empty if there is none."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - limit))
        text = file.read().decode("utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])
