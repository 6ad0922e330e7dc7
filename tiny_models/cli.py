"""Write a seeded tiny checkpoint of an architecture, with tokenizer and chat template.

python -m tiny_models qwen3_moe --scale nano --seed 0 --out checkpoint
python -m tiny_models list               # the architectures, and where their values come from
python -m tiny_models check-published    # compare those with the hub
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from .errors import TinyModelError
from .model import SCALES


def main(argv: list[str]) -> int:
    """Run one command; 0 done, 1 a published value differs, 2 bad request, 3 hub out of reach."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    args = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and clean up
    try:
        if args.what == "list":
            return _list()
        if args.what == "check-published":
            return _check_published(args.arch)
        return _write(args)
    except TinyModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tiny_models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", metavar="ARCH|list|check-published")
    parser.add_argument("arch", nargs="*", help="with check-published: only these")
    parser.add_argument("--scale", default="nano", help=f"{' or '.join(SCALES)} (default: nano)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights (default: 0)")
    parser.add_argument("--out", default="", help="folder to write")
    parser.add_argument(
        "--published-tokenizer",
        action="store_true",
        help="take the tokenizer from the hub instead of the built-in one (tiny only)",
    )
    return parser


def _write(args: argparse.Namespace) -> int:
    from .writer import write

    if args.arch:
        raise TinyModelError(f"one architecture at a time, not also {' '.join(args.arch)}")
    folder = write(
        args.what,
        args.scale,
        args.seed,
        args.out,
        published_tokenizer=args.published_tokenizer,
    )
    print(folder)
    return 0


def _list() -> int:
    from .registry import get, names

    for name in names():
        source = get(name).source
        print(f"{name:<14} {source.repository}@{source.revision}  ({source.origin})")
    return 0


def _check_published(only: list[str]) -> int:
    from .hub import check_published

    return check_published(only)
