"""The command as a user runs it, with trainers that go wrong on request (dummy.py)."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
DUMMY = Path(__file__).with_name("dummy.py")
DUMMY_TRAINER = ("trainer=command", "feature.compile=false")  # it compiles nothing
TRAINER = f'trainer.argv=["{{python}}","{DUMMY}","{{behaviour}}","{{output_dir}}","{{steps}}"]'


def sweep(
    *arguments: str, seconds: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python -m sweep` to its end, in the repository's folder."""
    return subprocess.run(
        [sys.executable, "-m", "sweep", *arguments], capture_output=True, text=True, cwd=ROOT,
        timeout=seconds, env={**os.environ, "COLUMNS": "80", **environment},
    )  # fmt: skip


def command(
    name: str, *arguments: str, seconds: float = 300, cwd: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`python -m sweep.<name>` to its end."""
    return subprocess.run(
        [sys.executable, "-m", f"sweep.{name}", *arguments], capture_output=True, text=True,
        cwd=cwd, timeout=seconds, env={**os.environ, "COLUMNS": "80", **environment},
    )  # fmt: skip


def console_script(folder: Path, python: str | Path = sys.executable) -> Path:
    """`trainer-sweep` in this folder, as pip makes it of pyproject.toml."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["trainer-sweep"].partition(":")
    path = folder / "trainer-sweep"
    path.write_text(
        f"#!{python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    )
    path.chmod(0o755)
    return path


def processes_of(folder: Path) -> list[str]:
    lines = (
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    )
    return [line for line in lines if str(folder) in line]
