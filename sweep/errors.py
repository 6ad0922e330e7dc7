"""What can go wrong with a sweep itself, and the line and exit code for each error."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class RequestError(ValueError):
    """What was asked for is wrong: one line that names the next step; exit code 2."""


class MachineryError(RuntimeError):
    """No job could be started or no result recorded: neither red nor green; exit code 3."""


class Interrupted(BaseException):
    """The job was told to stop (SIGTERM); as KeyboardInterrupt, not an Exception."""


@contextmanager
def refusing(where: object, step: str = "") -> Iterator[None]:
    """Raise RequestError for text that is damaged or no such thing: where, why and what to do."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        why = reason(error)
    except ValueError as error:  # no JSON, or not in UTF-8
        why = str(error)
    else:
        return
    raise RequestError(f"{where}: {why}" + (f"; {step}" if step else "")) from None


def reason(error: ValidationError) -> str:
    """The first complaint, as a few words that begin with the key that it is about."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """`there is no figure los: did you mean loss?`, or what there is where none is near."""
    choices = list(known)
    near = get_close_matches(name, choices)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(choices)}"
    return f"there is no {kind} {name}; {hint}"


ELSEWHERE = "name another folder with outputs=..."
# What the system refuses -> the next step. Another request would do, ...
_OF_THE_REQUEST = {
    errno.EACCES: f"you may not write there; {ELSEWHERE}",
    errno.EPERM: f"you may not write there; {ELSEWHERE}",
    errno.EROFS: f"nothing can be written there; {ELSEWHERE}",
    errno.ENOTDIR: f"a part of it is a file; {ELSEWHERE}",
    errno.EISDIR: "it is a folder, and a file is needed there",
    errno.EEXIST: f"something else is there; {ELSEWHERE}",
    errno.ELOOP: f"a link leads to itself; {ELSEWHERE}",
    errno.ENAMETOOLONG: f"choose shorter names, or {ELSEWHERE}",
}
# ... or the machine is short of something.
_OF_THE_MACHINE = {
    errno.ENOSPC: f"free some space, or {ELSEWHERE}",
    errno.EDQUOT: f"free some space, or {ELSEWHERE}",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "the machine has too many files open",
    errno.EAGAIN: "raise the limit on processes (ulimit -u)",
    errno.ENOENT: "it is not there, or no longer",
    errno.ENOMEM: "free some memory",
}


def told(error: BaseException) -> tuple[str, int]:
    """The line and the exit code; a fault of the sweep's own has its traceback printed before."""
    match error:
        case RequestError():
            return str(error), 2
        case MachineryError():
            return str(error), 3
        case KeyboardInterrupt() | Interrupted():
            return "interrupted", 130
        case OSError() if error.errno is not None:
            return of_system(error), 2 if error.errno in _OF_THE_REQUEST else 3
        case MemoryError():
            return f"out of memory; {_OF_THE_MACHINE[errno.ENOMEM]}", 3
    traceback.print_exception(error)
    line = " ".join(str(error).split())
    return f"a fault of the sweep itself, please report the lines above: {_kind(error)}: {line}", 3


def of_system(error: OSError) -> str:
    """What the system refuses, where, and the next step."""
    number = error.errno or 0
    path = os.fspath(error.filename) if isinstance(error.filename, (str, os.PathLike)) else ""
    reason = os.strerror(number) if number else str(error)
    step = _OF_THE_REQUEST.get(number) or _OF_THE_MACHINE.get(number)
    return ": ".join(filter(None, (_shortened(path), reason))) + (f": {step}" if step else "")


def _shortened(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:90]}...{path[-90:]}"


def _kind(error: BaseException) -> str:
    return type(error).__name__
