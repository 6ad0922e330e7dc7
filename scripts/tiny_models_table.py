"""Measure every tiny model and put the table into docs/tiny-models.md.

python scripts/tiny_models_table.py [--scale nano|tiny|both] [ARCH ...] [--print]

Each checkpoint is written in a process of its own, forked after the imports. Seconds are those of
the writing alone; peak memory is what the writing added to the process at its highest, over the
size of the weights.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch  # noqa: F401 - what is imported here is not counted
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: F401

from tiny_models import get, names, write

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs" / "tiny-models.md"
MARKS = re.compile(r"(<!-- table:(tiny|nano) -->\n).*?(<!-- end -->)", re.DOTALL)
SCALES = ("tiny", "nano")


@dataclass(frozen=True)
class Measured:
    """What writing one checkpoint took."""

    arch: str
    layers: int
    parameters: int
    megabytes: float
    seconds: float
    cpu_seconds: float
    """Of all threads; more telling than `seconds` on a machine that others use too."""
    peak_ratio: float
    """Highest memory added while writing, over the bytes of the checkpoint."""


def measure_here(arch: str, scale: str) -> Measured:
    """Write one checkpoint in this process, which should have done nothing else."""
    torch.set_num_threads(2)
    config = get(arch).config(scale)
    with torch.device("meta"):  # the baseline includes the code of the model
        AutoModelForCausalLM.from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        before, start, busy = _peak_bytes(), time.perf_counter(), time.process_time()
        path = write(arch, scale, 0, Path(folder) / "model")
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - busy
        added = _peak_bytes() - before
        size = sum(file.stat().st_size for file in path.glob("*.safetensors"))
        about = json.loads((path / "tiny_model.json").read_text())
    return Measured(
        arch=arch,
        layers=config.num_hidden_layers,
        parameters=about["parameters"],
        megabytes=size / 1e6,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        peak_ratio=added / size,
    )


def measure(arch: str, scale: str) -> Measured:
    """`measure_here` in a process of its own."""
    with multiprocessing.get_context("fork").Pool(1) as pool:
        row = pool.apply(measure_here, (arch, scale))
    print(row, file=sys.stderr, flush=True)
    return row


def table(rows: list[Measured]) -> str:
    """The rows as Markdown."""
    lines = [
        "| arch | layers | parameters | MB | seconds | CPU seconds | peak memory / checkpoint |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {row.arch} | {row.layers} | {row.parameters:,} | {row.megabytes:,.1f} "
        f"| {row.seconds:.1f} | {row.cpu_seconds:.1f} | {row.peak_ratio:.2f} |"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def insert(text: str, tables: dict[str, str]) -> str:
    """`text` with the tables between the marks of their scales."""

    def replace(match: re.Match[str]) -> str:
        return match[1] + tables.get(match[2], match[0][len(match[1]) : -len(match[3])]) + match[3]

    return MARKS.sub(replace, text)


def main() -> None:
    """Measure what was asked for; write the page, or print with --print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("arch", nargs="*")
    parser.add_argument("--scale", choices=[*SCALES, "both"], default="both")
    parser.add_argument("--print", action="store_true", dest="only_print")
    args = parser.parse_args()
    scales = SCALES if args.scale == "both" else (args.scale,)
    tables = {s: table([measure(arch, s) for arch in args.arch or names()]) for s in scales}
    if args.only_print or args.arch:
        print("\n".join(tables.values()))
    else:
        DOCS.write_text(insert(DOCS.read_text(encoding="utf-8"), tables), encoding="utf-8")


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
