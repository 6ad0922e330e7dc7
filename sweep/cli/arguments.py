"""`key=value` arguments of the commands next to `python -m sweep`, whose own are read by Hydra.

Not by argparse, which has no such arguments: over it this file was seven lines longer, and its
complaints spoke of options (`--base`) that nobody types.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.cli.terminal import check_linux, steady
from sweep.errors import RequestError, told
from sweep.files import ConfDirs, config_dir_of


@dataclass(frozen=True)
class Argument:
    """`name=value`; one without a default may be left out only if it is `optional`."""

    name: str
    meaning: str
    default: str | None = None
    optional: bool = False


SWEEP = Argument("sweep", "a sweep's id, or latest", "latest")
EXPERIMENT = Argument("experiment", "where to look for it, as in nightly; else all", optional=True)
OUTPUTS = Argument("outputs", "folder of results; MLFLOW_TRACKING_URI names a server", "outputs")


_OWN = "  --config-dir ...  your own thresholds.yaml, known_failures.yaml and the like"


@dataclass(frozen=True)
class Usage:
    """What a command takes: first its `words`, as in `pin SWEEP` (capitals stand for a value)."""

    command: str
    what: str
    example: str
    arguments: Sequence[Argument] = ()
    words: Sequence[str] = ()

    def __str__(self) -> str:
        known = [
            f"  {argument.name + '=...':<16} {argument.meaning}{_default(argument)}"
            for argument in self.arguments
        ]
        head = " ".join(["python -m", self.command, *self.words, "[key=value ...]"])
        return "\n".join([head, "", self.what, "", *known, _OWN, "", f"Example: {self.example}"])

    def parse(self, argv: Sequence[str]) -> dict[str, str]:
        """Argument or word (in lower case) -> value, without what is left out; RequestError."""
        values = {argument.name: argument.default for argument in self.arguments}
        words = [text for text in argv if "=" not in text]
        for text in argv:
            if "=" in text:
                key, _, value = text.partition("=")
                self._check(text, key, value)
                values[key] = value
        values.update(self._words(words))
        missing = [
            argument.name
            for argument in self.arguments
            if values[argument.name] is None and not argument.optional
        ]
        if missing:
            raise RequestError(f"{missing[0]}=... is missing; as in: {self.example}")
        return {key: value for key, value in values.items() if value is not None}

    def _check(self, text: str, key: str, value: str) -> None:
        names = [argument.name for argument in self.arguments]
        if key not in names:
            near = difflib.get_close_matches(key, names, 1)
            hint = f"did you mean {near[0]}=?" if near else f"known: {', '.join(names)}"
            raise RequestError(f"{text}: there is no argument {key}; {hint}")
        if not value:
            raise RequestError(f"{text}: say a value; as in: {self.example}")

    def _words(self, given: Sequence[str]) -> dict[str, str]:
        fits = len(given) == len(self.words) and all(
            word.isupper() or word == text for word, text in zip(self.words, given, strict=True)
        )
        if not fits:
            said = " ".join(given) or "a word is missing"
            raise RequestError(f"{said}: not understood; as in: {self.example}")
        return {
            word.lower(): text
            for word, text in zip(self.words, given, strict=True)
            if word.isupper()
        }


def run(
    usage: Usage, main: Callable[[dict[str, str], ConfDirs], int],
    argv: Sequence[str] | None = None,
) -> int:  # fmt: skip
    """Parse, call `main`, and turn what goes wrong into one line and an exit code (2, 3, 130)."""
    steady()
    argv = sys.argv[1:] if argv is None else argv
    if {"--help", "-h"} & set(argv):
        print(usage)
        return 0
    try:
        check_linux()
        own, rest = config_dir_of(argv)
        if own is not None and not Path(own).is_dir():
            raise RequestError(f"--config-dir {own}: no such folder")
        return main(usage.parse(rest), ConfDirs.having(own))
    except BaseException as error:  # each has its line and its exit code
        if isinstance(error, SystemExit):
            raise
        return _complain(usage, *told(error))


def seconds(name: str, text: str) -> float:
    """The number of seconds that an argument says; raises RequestError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise RequestError(f"{name}={text}: say a number of seconds")
    return value


def _default(argument: Argument) -> str:
    return f" (default: {argument.default})" if argument.default is not None else ""


def _complain(usage: Usage, line: str, code: int) -> int:
    print(f"{usage.command}: {line}", file=sys.stderr)
    return code
