"""What compiling costs on a CPU, by backend, side by side with no compiling.

python benchmarks/compile_backends.py                       # qwen3_moe, gpt_oss and llama
python benchmarks/compile_backends.py llama --repeats 5

Every run is a fresh process (two ranks, cp2_ep2, full activation checkpointing); inductor is there
with its cache emptied and with its cache full. Runs of all variants take turns, so that a busy
machine slows them alike. Medians, as a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tiny_models
from sft import launch

Records = list[dict[str, Any]]
STEPS = 4
DENSE = ("llama", "qwen3", "qwen3_5_dense")
VARIANTS: dict[str, str | None] = {
    "not compiled": None,
    "eager": "eager",
    "aot_eager": "aot_eager",
    "inductor, cold": "inductor",
    "inductor, warm": "inductor",
}


def train(arch: str, backend: str | None, folder: Path) -> Records:
    """The records of a few steps."""
    return launch.train(
        folder,
        model={"path": str(tiny_models.ensure(arch, "nano", 0))},
        layout={"cp": 2, "ep": 1 if arch in DENSE else 2},
        memory={"ac": "full", "compile": backend is not None, "compile_backend": backend},
        steps=STEPS,
    )


def measure(arch: str, repeats: int, scratch: Path) -> Iterator[tuple[str, Records]]:
    """(variant, records) of every run, the variants in turn."""
    for repeat in range(repeats):
        for name, backend in VARIANTS.items():
            if name.endswith("cold"):
                shutil.rmtree(os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)
            yield name, train(arch, backend, scratch / f"{arch}-{name}-{repeat}")


def row(arch: str, name: str, runs: list[Records]) -> str:
    """One line of the table."""
    first = statistics.median(records[0]["step_seconds"] for records in runs)
    later = statistics.median(one["step_seconds"] for records in runs for one in records[1:])
    counters = [records[0]["counters"] for records in runs]
    graphs, breaks = (
        max(max(one.get(key, [0])) for one in counters)
        for key in ("graphs_captured", "graph_breaks")
    )
    return f"| {arch} | {name} | {first:.1f} | {later:.2f} | {graphs:.0f} | {breaks:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archs", nargs="*", default=["qwen3_moe", "gpt_oss", "llama"])
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print("| arch | backend | first step, s | later steps, s | graphs | breaks |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{scratch}/inductor"
        for arch in arguments.archs:
            runs: dict[str, list[Records]] = {name: [] for name in VARIANTS}
            for name, records in measure(arch, arguments.repeats, Path(scratch)):
                runs[name].append(records)
            for name, found in runs.items():
                print(row(arch, name, found), flush=True)


if __name__ == "__main__":
    main()
