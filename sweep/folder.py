"""The folder of a sweep, and with it the sweep's id."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path


def claim(outputs: Path) -> Path:
    """Make outputs/<sweep id>; two sweeps of one second get two folders, also across machines."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for attempt in range(1, 1000):
        folder = outputs / (stamp if attempt == 1 else f"{stamp}-{attempt}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{outputs}/{stamp}: a thousand sweeps in one second")
