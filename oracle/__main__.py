"""python -m oracle CHECKPOINT BATCHES...: what training on these batches should have computed.

Prints JSON: for each step the loss, the gradient norm before clipping, in total and by parameter
group, the auxiliary loss if there is one, and the learning rate. docs/oracle.md has the formulas,
and the keys of the files of batches and settings.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from oracle import batches, source, ties
from oracle import settings as settings_file
from oracle.command import give
from oracle.plain import hide_kernels


def main(argv: list[str] | None = None) -> int:
    """The command; 2 for a request that cannot be answered."""
    return give("oracle", parser().parse_args(argv), answer)


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        prog="oracle", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("checkpoint", type=Path, help="folder of a transformers checkpoint")
    made.add_argument("batches", type=Path, nargs="+", help="files of batches, or their folders")
    made.add_argument("--settings", type=Path, help="JSON file; defaults where there is none")
    made.add_argument(
        "--reported",
        type=Path,
        help="the trainer's figures: which way do picks fall that are close?",
    )
    made.add_argument("--device", default="cpu", help="cpu, or an accelerator as cuda:0")
    made.add_argument("--out", type=Path, help="write the JSON there, not to standard output")
    return made


def answer(args: argparse.Namespace) -> dict[str, Any]:
    """What is printed; raises `OracleError`."""
    started, worked = time.perf_counter(), time.process_time()
    chosen = settings_file.Settings()
    if args.settings is not None:
        chosen = settings_file.read(args.settings)
    steps = batches.read(args.batches)
    data = {} if chosen.source is None else source.compare(args.checkpoint, steps, chosen)
    from oracle import steps as computing  # imports torch

    reported = None if args.reported is None else ties.read(args.reported)
    figures = list(computing.compute(args.checkpoint, steps, chosen, args.device, reported))
    return {
        "checkpoint": str(args.checkpoint),
        "batches_digest": batches.digest(steps),
        "settings": settings_file.plain(chosen),
        "data": data,
        "steps": figures,
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - worked,
    }


if __name__ == "__main__":
    hide_kernels("oracle")
    sys.exit(main())
