"""The releases of a package as a history that git can bisect, and environments with one of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from sweep.errors import MachineryError, RequestError
from sweep.files import write_text
from sweep.revisions.git import environment, git
from sweep.revisions.trial import Trial

PATIENCE = 1800.0  # seconds: an index may be far away, and a wheel of torch has gigabytes
NOBODY = ("-c", "user.name=sweep", "-c", "user.email=sweep@localhost")
BASE = "_environment.pth"
PLACES = """
import json, sys, sysconfig
std = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
print(json.dumps([p for p in sys.path if p and p not in std and "lib-dynload" not in p]))
"""


def known(package: str, wheels: str | None, python: str) -> list[Version]:
    """Its releases, the oldest first: of a folder of wheels, or of the index that pip asks.

    Without pre-releases, where there are others.
    """
    found = _in_folder(package, Path(wheels)) if wheels else _in_index(package, python)
    if not found:
        raise RequestError(f"package={package}: no release of it in {wheels or 'the index'}")
    return sorted({one for one in found if not one.is_prerelease} or set(found))


def between(releases: Sequence[Version], package: str, good: str, bad: str) -> list[Version]:
    """From the good one to the bad one, which may be the older; raises RequestError."""
    ends = [_one_of(releases, package, said, text) for said, text in (("good", good), ("bad", bad))]
    first, last = min(ends), max(ends)
    if first == last:
        raise RequestError(f"good and bad are both {first}")
    chosen = [version for version in releases if first <= version <= last]
    return chosen if ends[0] < ends[1] else chosen[::-1]


@contextmanager
def history(package: str, releases: Iterable[Version]) -> Iterator[Path]:
    """A repository with a commit for each release, in their order."""
    with TemporaryDirectory(prefix="sweep-releases-") as folder:
        tree = Path(folder)
        git(tree, "init", "--quiet")
        for release in releases:
            words = ("commit", "--quiet", "--allow-empty", "--message", f"{package} {release}")
            git(tree, *NOBODY, *words)
        yield tree


def install(trial: Trial, release: str, folder: Path) -> Path:
    """The interpreter of a new environment: the trainer's, with that release before its own.

    Raises RequestError with pip's last line where that release cannot be installed.
    """
    where = folder / "environment"
    _run([trial.python, "-m", "venv", "--without-pip", str(where)], "venv")
    (packages,) = where.glob("lib/python*/site-packages")
    lines = [_pth(place) for place in places(trial.python)]
    write_text(packages / BASE, "\n".join(lines) + "\n")
    python = where / "bin" / "python"
    source = ["--no-index", "--find-links", trial.wheels] if trial.wheels else []
    _pip(str(python), "install", "--quiet", *source, f"{trial.package}=={release}")
    return python


def places(python: str) -> list[str]:
    """Where an interpreter finds packages."""
    found: list[str] = json.loads(_run([python, "-c", PLACES], python))
    return found


def _pth(place: str) -> str:
    """The line of a .pth file that adds a folder, and what its own .pth files add."""
    is_site = Path(place).name in ("site-packages", "dist-packages")
    return f"import site; site.addsitedir({place!r})" if is_site else place


def _in_folder(package: str, folder: Path) -> list[Version]:
    if not folder.is_dir():
        raise RequestError(f"wheels={folder}: no such folder")
    found = []
    for path in folder.glob("*.whl"):
        try:
            name, version, _, _ = parse_wheel_filename(path.name)
        except InvalidWheelFilename:
            continue
        if name == canonicalize_name(package):
            found.append(version)
    return found


def _in_index(package: str, python: str) -> list[Version]:
    said = _pip(python, "index", "versions", package)
    match = re.search(r"^Available versions: (.*)$", said, re.MULTILINE)
    return [Version(text) for text in match[1].split(", ")] if match else []


def _one_of(releases: Sequence[Version], package: str, said: str, text: str) -> Version:
    try:
        version = Version(text)
    except InvalidVersion:
        raise RequestError(f"{said}={text}: no version, as 1.2.0 is one") from None
    if version not in releases:
        shown = ", ".join(map(str, releases[-8:]))
        raise RequestError(f"{said}={text}: no such release of {package}; the last are {shown}")
    return version


def _pip(python: str, *words: str) -> str:
    return _run(
        [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", *words],
        "pip",
    )


def _run(argv: Sequence[str], what: str) -> str:
    """Its output; what is in our own PYTHONPATH is no part of an environment."""
    env = {key: value for key, value in environment().items() if key != "PYTHONPATH"}
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, env=env, timeout=PATIENCE, cwd=os.sep
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineryError(f"{what}: {error}") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).strip().splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")]
        raise RequestError(f"{what}: {(errors or lines or ['it failed'])[-1]}")
    return done.stdout
