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

    @classmethod
    def having(cls, device: str) -> Machine:
        """One that has decided cases to run on `device`, elsewhere."""
        return cls(("0",) if device == "cuda" else ())

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
def gpu() -> dict[str, str]:
    """Name and driver of the machine's first GPU; empty without one."""
    lines = _nvidia_smi("--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    return dict(zip(("gpu", "gpu_driver"), lines[0].split(", "), strict=False)) if lines else {}


@cache
def _count() -> int:
    return sum(line.startswith("GPU ") for line in _nvidia_smi("-L").splitlines())


def _nvidia_smi(*arguments: str) -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
