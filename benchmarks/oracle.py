"""How far the trainer is from the oracle, by architecture and kernel, and what the oracle costs.

python benchmarks/oracle.py                                                # nano, float32, this CPU
python benchmarks/oracle.py --scale tiny --dtype bfloat16 --device cuda --kernels sdpa,flex,fla

One process of `sft` per architecture and kernel, a few steps with weight decay, warm-up and
clipping; then the oracle on its batches, in float32. The table has the largest relative difference
of loss and gradient norm at the first step and after it, and the seconds of both programs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tiny_models

OPTIM = {"lr": 1e-4, "weight_decay": 0.1, "warmup_steps": 2, "max_grad_norm": 1.0}
KERNELS = {
    "sdpa": {"attention": "sdpa"},
    "flex": {"attention": "flex"},
    "fla": {"linear_attention": "fla"},
}
HEAD = (
    (
        "| arch | kernel | loss, step 1 | grad norm, step 1 | loss, later | grad norm, later"
        " | sft, s | oracle, s |"
    ),
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
)


def main() -> int:
    """Print a row as each is measured; 1 if a program failed."""
    args = arguments()
    failed = False
    print("\n".join(HEAD), flush=True)
    for arch in args.arch.split(",") if args.arch else tiny_models.names():
        for kernel in args.kernels.split(","):
            try:
                print(row(arch, kernel, args), flush=True)
            except subprocess.CalledProcessError as error:
                failed = True
                print(f"| {arch} | {kernel} | {_last_line(error)} | | | | | |", flush=True)
    return int(failed)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arch", help="a,b; all by default")
    parser.add_argument("--kernels", default="sdpa", help=f"a,b of {', '.join(KERNELS)}")
    parser.add_argument("--scale", default="nano")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--out", type=Path, default=Path("outputs/oracle"))
    return parser.parse_args()


def row(arch: str, kernel: str, args: argparse.Namespace) -> str:
    """Train, ask the oracle, compare; raises CalledProcessError."""
    folder = args.out / f"{arch}-{kernel}-{args.dtype}"
    folder.mkdir(parents=True)
    checkpoint = tiny_models.ensure(arch, args.scale, 0)
    trained = _timed(train(checkpoint, kernel, folder, args), folder)
    asked = _timed(ask(checkpoint, folder, args), folder)
    ours = _lines((folder / "metrics.jsonl").read_text())
    theirs = json.loads((folder / "answer.json").read_text())["steps"]
    first, later = differences(ours[:1], theirs[:1]), differences(ours[1:], theirs[1:])
    figures = " | ".join(f"{value:.1e}" for value in (*first, *later))
    return f"| {arch} | {kernel} | {figures} | {trained:.1f} | {asked:.1f} |"


def train(checkpoint: Path, kernel: str, folder: Path, args: argparse.Namespace) -> list[str]:
    """The command that trains; it writes metrics.jsonl and its batches."""
    config = {
        "model": {"path": str(checkpoint), "dtype": args.dtype, **KERNELS[kernel]},
        "data": {"seq_len": args.seq_len},
        "optim": OPTIM,
        "steps": args.steps,
        "output_dir": str(folder.resolve()),
    }
    (folder / "config.json").write_text(json.dumps(config))
    return [
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"),
        *("-m", "sft", str(folder / "config.json")),
    ]


def ask(checkpoint: Path, folder: Path, args: argparse.Namespace) -> list[str]:
    """The command that asks the oracle."""
    settings = {**OPTIM, "decay": "matrices", "dtype": args.dtype}
    (folder / "settings.json").write_text(json.dumps(settings))
    command = [
        *("-m", "oracle", str(checkpoint), str(folder / "taps"), "--device", args.device),
        *("--settings", str(folder / "settings.json"), "--out", str(folder / "answer.json")),
    ]
    if args.dtype == "float32":  # in bfloat16 a pick that is close says nothing
        command += ["--reported", str(folder / "metrics.jsonl")]
    return command


def differences(
    ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]
) -> Iterator[float]:
    """The largest relative differences of loss and gradient norm over these steps."""
    for name in ("loss", "grad_norm"):
        yield max(
            (abs(a[name] / b[name] - 1) for a, b in zip(ours, theirs, strict=True)), default=0.0
        )


def _timed(command: Sequence[str], folder: Path) -> float:
    """Seconds of a Python program; raises CalledProcessError with what it wrote."""
    environment = {**os.environ, "SWEEP_TAPS": str((folder / "taps").resolve())}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, *command], check=True, capture_output=True, text=True, env=environment
    )
    return time.perf_counter() - started


def _lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def _last_line(error: subprocess.CalledProcessError) -> str:
    lines = [line for line in error.stderr.splitlines() if "Error" in line] or ["no message"]
    return lines[-1].replace("|", "/")[:160]


if __name__ == "__main__":
    sys.exit(main())
