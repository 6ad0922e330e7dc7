"""python benchmarks/overhead.py: the CPU that the sweep itself takes, beside what it launches.

Sweeps of a few and of many cases whose trainer does next to nothing; what the trainers used, by
the facts of their launches, is taken off. The slope is what a case costs (its job's process, and
the driver's following, recording, judging and reporting of it), the rest is paid once a sweep.
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
from pathlib import Path

from benchmarks.children import cpu_seconds, reap

PR_SET_CHILD_SUBREAPER = 36
FIGURES = {"grad_norm": 1.0, "lr": 1e-4, "tokens": 100, "params_moved": 1.0}


def main() -> None:
    """Print what a case costs and what a sweep costs."""
    if sys.argv[1:2] == ["train"]:
        train(Path(sys.argv[2]), int(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", type=int, default=2)
    parser.add_argument("--many", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    # Orphans become our children, so that nothing that the sweep starts goes uncounted.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    cases, sweeps = [], []
    for _ in range(asked.repeats):
        few, many = overhead(asked.few), overhead(asked.many)
        cases.append((many - few) / (asked.many - asked.few))
        sweeps.append(few - asked.few * cases[-1])
    for name, seconds_used in (("a case", cases), ("a sweep", sweeps)):
        spread = " ".join(f"{seconds:.2f}" for seconds in sorted(seconds_used))
        print(f"{name}: {statistics.median(seconds_used):.2f} CPU-seconds (median of {spread})")


def overhead(cases: int) -> float:
    """CPU-seconds of a sweep of that many cases, without its launches."""
    with tempfile.TemporaryDirectory() as outputs:
        before = cpu_seconds()
        done = subprocess.run(
            [sys.executable, "-m", "sweep", "-m", "arch=llama", "layout=single",
             f"seed=range({cases})", "trainer=command", "feature.compile=false", "launch.slots=2",
             f'trainer.argv=["{{python}}","{__file__}",train,"{{output_dir}}","{{steps}}"]',
             f"outputs={outputs}"],
            capture_output=True, text=True, env={**os.environ, "MLFLOW_TRACKING_URI": ""},
        )  # fmt: skip
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        reap()
        launches = [
            launch["cpu_seconds"]
            for path in Path(outputs).glob("*/*/facts.json")
            for launch in json.loads(path.read_text())["launches"]
        ]
        return cpu_seconds() - before - sum(launches)


def train(directory: Path, steps: int) -> None:
    """The trainer: five lines and out."""
    lines = [{"step": step, "loss": 3 - 0.1 * step, **FIGURES} for step in range(1, steps + 1)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text)


if __name__ == "__main__":
    main()
