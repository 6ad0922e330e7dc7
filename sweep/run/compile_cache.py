"""Where compiled code is kept between ranks, launches and sweeps.

Inductor and Triton name what they keep by the graph, the options and the device. They leave out
what is the same for all of a process's life, so that is in the folder's name: versions, and what
the CPU can do, since C++ kernels are compiled for the machine's own (`-march=native`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from functools import cache
from pathlib import Path

from sweep.provenance import version

VARIABLE = "SWEEP_CACHE"
PACKAGES = ("torch", "triton")


def cache_variables() -> dict[str, str]:
    """Where torch and Triton keep what they compile, unless the user has said so.

    Empty where nothing can be kept there: a user without a home, or one who may not write there.
    """
    try:
        folder = str(default_cache() / "inductor" / key())
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError:
        return {}
    # Triton would go by TORCHINDUCTOR_CACHE_DIR under inductor, and by its own default elsewhere
    given = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": f"{folder}/triton"}
    return {name: value for name, value in given.items() if name not in os.environ}


def default_cache() -> Path:
    """`$SWEEP_CACHE`, or `~/.cache/trainer-sweep`; OSError for a user who has no home."""
    try:
        return Path(os.environ.get(VARIABLE) or Path.home() / ".cache" / "trainer-sweep")
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from error


@cache
def key() -> str:
    """`torch2.13.0-py3.11-1f2e3d4c`: versions for people to see, the rest as a digest."""
    versions = [f"{name}{number}" for name in PACKAGES if (number := version(name))]
    versions.append(f"py{'.'.join(platform.python_version_tuple()[:2])}")
    return "-".join([*versions, hashlib.sha256(_cpu().encode()).hexdigest()[:8]])


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine()
    lines = re.findall(r"^(?:model name|flags|Features|CPU part)\s*:.*$", text, re.MULTILINE)
    return platform.machine() + "\n".join(sorted(set(lines)))
