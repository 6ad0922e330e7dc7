"""What the commands of the oracle have in common: JSON out, mistakes as one line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from oracle.errors import OracleError


def give(name: str, args: argparse.Namespace, answer: Callable[[argparse.Namespace], Any]) -> int:
    """Print the answer, or write it to `args.out`; 2 for a request that cannot be answered."""
    try:
        text = json.dumps(answer(args), indent=1) + "\n"
        if args.out is None:
            sys.stdout.write(text)
        else:
            args.out.write_text(text, encoding="utf-8")
    except OracleError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{name}: {args.out} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    return 0
