"""What compiling costs on a CPU, by backend and length of a row, side by side with no compiling.

python benchmarks/compile_backends.py                       # qwen3_moe, gpt_oss and llama
python benchmarks/compile_backends.py llama --repeats 5
python benchmarks/compile_backends.py qwen3_5_dense --seq-len 512 2048 --backends aot_eager

Every run is a fresh process (two ranks, cp2_ep2, full activation checkpointing); inductor is there
with its cache emptied and with its cache full. Runs of all variants take turns, so that a busy
machine slows them alike. Medians, as a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tiny_models
from sft.config import COMPILE_BACKENDS
from sft.warm import launch

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


def train(arch: str, seq_len: int, backend: str | None, folder: Path) -> Records:
    """The records of a few steps."""
    return launch.train(
        folder,
        data={"seq_len": seq_len},
        model={"path": str(tiny_models.ensure(arch, "nano", 0))},
        layout={"cp": 2, "ep": 1 if arch in DENSE else 2},
        memory={"ac": "full", "compile": backend is not None, "compile_backend": backend},
        steps=STEPS,
    )


def measure(
    arch: str, seq_len: int, variants: list[str], repeats: int, scratch: Path
) -> Iterator[tuple[str, Records]]:
    """(variant, records) of every run, the variants in turn."""
    for repeat in range(repeats):
        for name in variants:
            if name.endswith("cold"):
                shutil.rmtree(os.environ["TORCHINDUCTOR_CACHE_DIR"], ignore_errors=True)
            folder = scratch / f"{arch}-{seq_len}-{name}-{repeat}"
            yield name, train(arch, seq_len, VARIANTS[name], folder)


def row(arch: str, seq_len: int, name: str, runs: list[Records]) -> str:
    """One line of the table."""
    first = statistics.median(records[0]["step_seconds"] for records in runs)
    later = statistics.median(record["step_seconds"] for records in runs for record in records[1:])
    counters = [records[0]["counters"] for records in runs]
    compiling = statistics.median(max(counts.get("compile_seconds", [0])) for counts in counters)
    graphs, breaks = (
        max(max(counts.get(key, [0])) for counts in counters)
        for key in ("graphs_captured", "graph_breaks")
    )
    seconds = f"{first:.1f} | {compiling:.1f} | {later:.2f}"
    return f"| {arch} | {seq_len} | {name} | {seconds} | {graphs:.0f} | {breaks:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archs", nargs="*", default=["qwen3_moe", "gpt_oss", "llama"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seq-len", type=int, nargs="+", default=[512], help="tokens a row")
    parser.add_argument("--backends", nargs="+", choices=COMPILE_BACKENDS, default=COMPILE_BACKENDS)
    arguments = parser.parse_args()
    asked = (None, *arguments.backends)
    variants = [name for name, backend in VARIANTS.items() if backend in asked]
    columns = "arch|tokens a row|backend|first step, s|compile, s|later steps, s|graphs|breaks"
    print(f"| {columns.replace('|', ' | ')} |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{scratch}/inductor"
        for arch, seq_len in itertools.product(arguments.archs, arguments.seq_len):
            runs: dict[str, list[Records]] = {name: [] for name in variants}
            measured = measure(arch, seq_len, variants, arguments.repeats, Path(scratch))
            for name, records in measured:
                runs[name].append(records)
            for name, all_records in runs.items():
                print(row(arch, seq_len, name, all_records), flush=True)


if __name__ == "__main__":
    main()
