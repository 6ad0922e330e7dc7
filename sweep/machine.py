"""What this machine holds, found without importing torch."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Machine:
    """The GPUs that this process may use, as names for CUDA_VISIBLE_DEVICES."""

    gpus: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """`cuda` if there is a GPU, else `cpu`."""
        return "cuda" if self.gpus else "cpu"


@cache
def this_machine() -> Machine:
    """The GPUs that nvidia-smi lists, narrowed by the parent's CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        return Machine(tuple(name for name in names if name and name != "-1") if _count() else ())
    return Machine(tuple(str(index) for index in range(_count())))


@cache
def _count() -> int:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())
