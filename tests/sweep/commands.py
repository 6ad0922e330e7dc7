"""The command as a user runs it, with trainers that go wrong on request (dummy.py)."""

from __future__ import annotations

import os
import subprocess
import sys
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


def processes_of(folder: Path) -> list[str]:
    lines = (
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    )
    return [line for line in lines if str(folder) in line]
