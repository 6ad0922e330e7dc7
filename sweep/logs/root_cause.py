"""Which rank failed first, and what it said: from torchrun's summary and its error files."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sweep.files import tail

_NO_TRACEBACK = "To enable traceback see"
_ROOT = "Root Cause (first observed failure):"
_CURRENT = "Current thread "
_NO_CAUSE = re.compile(r"(?i)\bwarn(ing)?s?\b|\w+Warning\b|^[WI]\d{4} |^submitit (INFO|DEBUG)")
_FIRST = re.compile(r"from_rank_(\d+)")  # see sweep/slurm/nodes.py
_FIELD = re.compile(r"^\s+(rank|exitcode|traceback)\s*:\s*(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class RootCause:
    """The rank that failed first; `rank` is None where nothing names one."""

    rank: int | None = None
    failure: str = ""
    rank_tail: str = ""


def rank_of(directory: Path) -> int:
    """The rank whose logs are in `directory`: torchrun names it by its number on its node.

    Raises ValueError if it does not.
    """
    first = (_FIRST.fullmatch(part) for part in directory.parts)
    return int(directory.name) + sum(int(match.group(1)) for match in first if match)


def logs_in(ranks: Path, *names: str) -> Iterator[tuple[int, Path]]:
    """Rank and path of each of torchrun's logs of these names; what else is there is none."""
    for name in names:
        for log in sorted(ranks.rglob(name)):
            with contextlib.suppress(ValueError):
                yield rank_of(log.parent), log


def find(log: Path, ranks: Path) -> RootCause:
    """What torchrun's summary in `log` names, else the earliest error file under `ranks`."""
    error_files = _error_files(ranks)
    rank, failure = _from_summary(tail(log, lines=400, limit=1 << 20))
    if rank is None and error_files:
        rank = min(error_files, key=lambda file: error_files[file][0])
    if rank is None:
        return RootCause()
    if rank in error_files:
        failure = error_files[rank][1]
    return RootCause(rank, failure, _rank_tail(ranks, rank))


def last_complaint(log: str) -> str:
    """The last line of a job's log that may say why it ended; empty where there is none.

    A launcher's or a library's warning does not, nor what submitit logs of its own work.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if not _NO_CAUSE.search(line)), "")


def last_words(ranks: Path, lines: int = 15) -> str:
    """Where every rank hung: the innermost calls of its stacks, which a time-out makes it write."""
    logs = sorted(logs_in(ranks, "stderr.log"))
    return "\n".join(f"rank {rank}:\n{_hung_at(log, lines)}" for rank, log in logs)


def _hung_at(log: Path, lines: int) -> str:
    """faulthandler says which thread was current, its innermost call first.

    Helpers of the rank write theirs into the same log; the rank is where most calls are open.
    """
    _, *stacks = tail(log, lines=2000, limit=1 << 20).split(_CURRENT)
    deepest = max((stack.partition("\n\n")[0] for stack in stacks), key=_depth, default="")
    return "\n".join((_CURRENT + deepest).splitlines()[:lines]) if stacks else tail(log, lines)


def _depth(stack: str) -> int:
    return stack.count('  File "')


def _from_summary(text: str) -> tuple[int | None, str]:
    _, heading, block = text.rpartition(_ROOT)
    if not heading:
        return None, ""
    fields: dict[str, str] = {}
    for key, value in _FIELD.findall(block):
        fields.setdefault(key, value.strip())
    number = re.match(r"\d+", fields.get("rank", ""))
    said = fields.get("traceback", _NO_TRACEBACK)
    if said.startswith(_NO_TRACEBACK):
        said = f"exit code {fields.get('exitcode', 'unknown')}"
    return (int(number.group()) if number else None), said


def _error_files(ranks: Path) -> dict[int, tuple[float, str]]:
    """Rank -> time and message of its error file; an unreadable one is left out."""
    errors = {}
    for path in ranks.rglob("error.json"):
        try:
            message = json.loads(path.read_text(encoding="utf-8"))["message"]
            said = message["message"] if isinstance(message, dict) else str(message)
            extra = message.get("extraInfo", {}) if isinstance(message, dict) else {}
            errors[rank_of(path.parent)] = (float(extra.get("timestamp", 0)), _one_line(said))
        except (OSError, ValueError, KeyError, AttributeError):
            continue
    return errors


def _rank_tail(ranks: Path, rank: int) -> str:
    logs = logs_in(ranks, "stdout.log", "stderr.log")
    return "\n".join(filter(None, (tail(log) for of_rank, log in logs if of_rank == rank)))


def _one_line(text: str, limit: int = 500) -> str:
    return " ".join(text.split())[:limit]
