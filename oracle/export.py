"""python -m oracle.export EXPORT CHECKPOINT BATCHES... --after N: what a trainer's export gives.

Prints JSON: the loss of the batch of step N + 1, computed by plain transformers from what a trainer
exported after step N, and which keys or shapes it has otherwise than CHECKPOINT, from which the
trainer started. docs/oracle.md says what is compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from oracle import batches, ties
from oracle import settings as settings_file
from oracle.command import give
from oracle.errors import OracleError
from oracle.plain import hide_kernels

EXAMPLES = 5


def main(argv: list[str] | None = None) -> int:
    """The command; 2 for a request that cannot be answered."""
    return give("oracle.export", parser().parse_args(argv), answer)


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(
        prog="oracle.export",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("export", type=Path, help="folder that the trainer wrote")
    made.add_argument("checkpoint", type=Path, help="folder that the trainer started from")
    made.add_argument("batches", type=Path, nargs="+", help="files of batches, or their folders")
    made.add_argument("--after", type=int, required=True, help="the step that it was written after")
    made.add_argument("--loss", type=float, help="the trainer's: which way do close picks fall?")
    made.add_argument("--settings", type=Path, help="JSON file, of which dtype counts")
    made.add_argument("--device", default="cpu", help="cpu, or an accelerator as cuda:0")
    made.add_argument("--out", type=Path, help="write the JSON there, not to standard output")
    return made


def answer(args: argparse.Namespace) -> dict[str, Any]:
    """What is printed; raises `OracleError`."""
    worked = time.process_time()
    chosen = settings_file.Settings()
    if args.settings is not None:
        chosen = settings_file.read(args.settings)
    steps = batches.read(args.batches)
    if args.after + 1 not in steps:
        raise OracleError(f"--after {args.after}: there is no batch of step {args.after + 1}")
    from oracle import exported  # imports torch

    problems = list(exported.other_keys(args.export, args.checkpoint))
    figures: dict[str, Any] = {}
    if not problems:
        try:
            model = exported.load(args.export, args.checkpoint, chosen.dtype)
            reported = ties.trusted(args.loss, chosen.dtype)
            figures = exported.loss(model.to(args.device), steps[args.after + 1], reported)
        except OracleError as error:
            problems.append(str(error))
    return {
        "step": args.after + 1,
        "wrong": len(problems),
        "problems": problems[:EXAMPLES],
        **figures,
        "cpu_seconds": time.process_time() - worked,
    }


if __name__ == "__main__":
    hide_kernels("oracle.export")
    sys.exit(main())
