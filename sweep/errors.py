"""The two ways in which a sweep itself can go wrong, apart from a trainer that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class RequestError(ValueError):
    """What was asked for is wrong: one line that names the next step; exit code 2."""


class MachineryError(RuntimeError):
    """No job could be started or no result recorded: neither red nor green; exit code 3."""


class Interrupted(BaseException):
    """The job was told to stop (SIGTERM); as KeyboardInterrupt, not an Exception."""


def reason(error: ValidationError, separator: str = ".") -> str:
    """The first complaint, as a few words that begin with the key that it is about."""
    first = error.errors()[0]
    where = separator.join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
