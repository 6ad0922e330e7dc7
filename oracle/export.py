"""python -m oracle.export EXPORT CHECKPOINT BATCHES... --after N: what a trainer's export gives.

Prints JSON: the loss of the batch of step N + 1, computed by plain transformers from what a trainer
exported after step N, and which keys or shapes it has otherwise than CHECKPOINT, from which the
trainer started. docs/oracle.md says what is compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from oracle import batches
from oracle import settings as settings_file
from oracle.errors import OracleError

EXAMPLES = 5


def main(argv: list[str] | None = None) -> int:
    """The command; 2 for a request that cannot be answered."""
    args = parser().parse_args(argv)
    try:
        text = json.dumps(answer(args), indent=1) + "\n"
    except OracleError as error:
        print(f"oracle.export: {error}", file=sys.stderr)
        return 2
    if args.out is None:
        sys.stdout.write(text)
    else:
        args.out.write_text(text, encoding="utf-8")
    return 0


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
            figures = exported.loss(model.to(args.device), steps[args.after + 1], args.loss)
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
    sys.exit(main())
