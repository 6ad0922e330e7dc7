"""The commits between two nights, with their authors and subjects."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from sweep.provenance import ROOT

SHOWN = 10
SECONDS = 20


@dataclass
class Commits:
    """A repository of the trainer; ranges that it has not are told by their ends alone."""

    repo: Path = ROOT
    _known: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def between(self, old: str, new: str) -> list[str]:
        """`1a2b3c4 Ann: subject`, the newest first; empty where the repository has not both."""
        if (old, new) not in self._known:
            self._known[old, new] = self._log(old, new)
        return self._known[old, new]

    def _log(self, old: str, new: str) -> list[str]:
        words = ["git", "-C", str(self.repo), "log", "--format=%h %an: %s", f"{old}..{new}", "--"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            return []
        lines = done.stdout.splitlines() if done.returncode == 0 else []
        more = [f"and {len(lines) - SHOWN} commits more"] if len(lines) > SHOWN else []
        return lines[:SHOWN] + more
