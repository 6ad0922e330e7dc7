"""python benchmarks/command.py: what one case costs, from Enter to its verdict.

`python -m sweep -m arch=llama layout=single feature=none`, MLflow included, and plain `torchrun` of
the same trainer with the same configuration take turns, so that whatever else the machine does
falls on both. Seconds are until the table with the verdict is printed, CPU-seconds those of all
processes to the end. Each sweep gets an empty output folder; caches are as they are after the first
sweep, which is not counted.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.children import cpu_seconds, reap

PR_SET_CHILD_SUBREAPER = 36
GOAL = (11.0, 14.0)  # seconds and CPU-seconds on two idle cores


@dataclass(frozen=True)
class Took:
    """What a command took to its first line that shows how it went, and in CPU time."""

    seconds: float
    cpu_seconds: float


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", default="llama")
    parser.add_argument("--layout", default="single")
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    # Orphans become our children, so that nothing that a command starts goes uncounted.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory() as folder:
        sweeps, plain = measure(asked, Path(folder))
    print(f"load average at the end: {os.getloadavg()[0]:.1f}")
    print("| command | s to the verdict | CPU-seconds |")
    print("| --- | --- | --- |")
    for name, runs in (("python -m sweep", sweeps), ("torchrun", plain)):
        print(f"| {name} | {_shown([r.seconds for r in runs])} |", end="")
        print(f" {_shown([r.cpu_seconds for r in runs])} |")
    print(f"goal: {GOAL[0]:g} s, {GOAL[1]:g} CPU-seconds")


def measure(asked: argparse.Namespace, folder: Path) -> tuple[list[Took], list[Took]]:
    """Sweeps, and launches by torchrun alone, in turn."""
    sweeps, plain = [], []
    for number in range(asked.repeats + 1):
        outputs = folder / str(number)
        words = [f"arch={asked.arch}", f"layout={asked.layout}", "feature=none"]
        took = run([sys.executable, "-m", "sweep", "-m", *words, f"outputs={outputs}"], "verdict ")
        if number == 0:
            continue
        sweeps.append(took)
        plain.append(run(torchrun(outputs, folder / f"plain-{number}"), ""))
    return sweeps, plain


def torchrun(outputs: Path, directory: Path) -> list[str]:
    """The first launch of the sweep's case, as a user types it, into `directory`."""
    (facts,) = outputs.glob("*/*/facts.json")
    launch = json.loads(facts.read_text())["launches"][0]
    config = json.loads(Path(launch["argv"][-1]).read_text())
    directory.mkdir()
    path = directory / "config.json"
    path.write_text(json.dumps({**config, "output_dir": str(directory)}))
    first = launch["argv"].index("--log-dir")
    return [*launch["argv"][:first], *launch["argv"][first + 4 : -1], str(path)]


def run(command: Sequence[str], shows: str) -> Took:
    """Run it; seconds are until a line holds `shows`, or to the end where that is empty."""
    cpu, began, seconds = cpu_seconds(), time.monotonic(), None
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    env.pop("MLFLOW_TRACKING_URI", None)
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as started:
        assert started.stdout is not None
        for line in started.stdout:
            lines.append(line)
            if shows and shows in line and seconds is None:
                seconds = time.monotonic() - began
    if started.returncode != 0 or (shows and seconds is None):
        sys.exit(f"{' '.join(command)} ended with {started.returncode}:\n{''.join(lines)}")
    reap()
    took = Took(seconds or time.monotonic() - began, cpu_seconds() - cpu)
    print(f"{command[2]}: {took.seconds:.1f} s, {took.cpu_seconds:.1f} CPU-seconds", flush=True)
    return took


def _shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    main()
