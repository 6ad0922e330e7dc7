"""How a job ended, as its launcher tells it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobEnd:
    """Why a job ended before it could say so itself."""

    reason: str
    timed_out: bool = False


DIED = JobEnd("the job died without leaving a result")
