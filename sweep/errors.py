"""The two ways in which a sweep itself can go wrong, apart from a trainer that fails."""

from __future__ import annotations


class RequestError(ValueError):
    """What was asked for is wrong: one line that names the next step; exit code 2."""


class MachineryError(RuntimeError):
    """No job could be started or no result recorded: neither red nor green; exit code 3."""


class Interrupted(BaseException):
    """The job was told to stop (SIGTERM); as KeyboardInterrupt, not an Exception."""
