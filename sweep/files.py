"""Where `conf/` is, and writing a file so that a reader sees all of it or nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sweep.errors import RequestError


def conf_dir() -> Path:
    """The folder of configuration: inside the installed package, or beside it in a source tree."""
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


_own: Path | None = None


@contextlib.contextmanager
def reading_also(own: str | Path | None) -> Iterator[None]:
    """Configuration is read from this folder too, after `conf/`. For the command line alone."""
    global _own
    before, _own = _own, None if own is None else Path(own)
    try:
        yield
    finally:
        _own = before


def own_conf_dir() -> Path | None:
    """The folder that the command was given besides `conf/`."""
    return _own


def conf_dirs() -> list[Path]:
    """`conf/`, then the folder that the command was given."""
    return [conf_dir()] if _own is None else [conf_dir(), _own]


def conf_files(*names: str) -> list[Path]:
    """Those in `conf/`, then one's own; all but the first may be missing."""
    return files_in(conf_dirs(), *names)


def conf_files_of(group: str) -> list[Path]:
    """The files of a group of the configuration, as `arch`: the tool's, then one's own."""
    own = own_conf_dir()
    folders = [conf_dir()] if own is None else [conf_dir(), own]
    return [path for folder in folders for path in sorted((folder / group).glob("*.yaml"))]


def choices_of(group: str) -> list[str]:
    """The names in a group of the configuration."""
    return sorted({path.stem for path in conf_files_of(group)})


def files_in(folders: Sequence[Path], *names: str) -> list[Path]:
    """The files of these names, folder by folder; all but the first may be missing."""
    found = [folder / name for folder in folders for name in names]
    return [path for path in found if path == found[0] or path.is_file()]


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
