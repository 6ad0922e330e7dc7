"""Measure every tiny model and put the table into docs/tiny-models.md.

python scripts/tiny_models_table.py [--scale nano|tiny|both] [ARCH ...] [--print]

Each checkpoint is written in a fresh process. Seconds are those of the writing alone, without the
imports; peak memory is what the writing added to the process at its highest, over the size of the
checkpoint.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

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
    """Write one checkpoint in this process, which should be a fresh one."""
    import safetensors.torch  # noqa: F401 - part of the baseline
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast  # noqa: F401

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
    command = [sys.executable, __file__, arch, "--scale", scale, "--here"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("arch", nargs="*")
    parser.add_argument("--scale", choices=[*SCALES, "both"], default="both")
    parser.add_argument("--print", action="store_true", dest="only_print")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.here:
        print(json.dumps(asdict(measure_here(args.arch[0], args.scale))))
        return
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
