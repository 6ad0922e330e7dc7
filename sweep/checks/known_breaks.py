"""The graph breaks that are known, from `conf/known_graph_breaks.yaml`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from pydantic import Field

from sweep import conf_file
from sweep.case.labels import Case
from sweep.conf_file import OfCases, Pattern
from sweep.facts import Happening
from sweep.files import ConfDirs

FILE = "known_graph_breaks.yaml"


class KnownBreak(OfCases):
    """Where a break is expected, and why nobody fixes it today."""

    frame: str = Field(min_length=1)  # glob on file:line
    reason: Pattern  # regular expression, found anywhere
    why: str = Field(min_length=1)
    issue: str | None = None

    def covers(self, graph_break: Happening) -> bool:
        """Whether it is this break."""
        in_frame = fnmatchcase(graph_break.frame, self.frame)
        return in_frame and re.search(self.reason, graph_break.reason) is not None

    def __str__(self) -> str:
        return f"{self.frame}: {self.reason} ({self.issue or self.why})"


def of_case(case: Case, conf: ConfDirs) -> list[KnownBreak]:
    """The entries that name the case; raises RequestError if a file cannot be read."""
    return [entry for entry in entries(conf) if entry.names(case)]


def entries(conf: ConfDirs) -> Sequence[KnownBreak]:
    """All that are known; raises RequestError if a file cannot be read."""
    return conf_file.entries(conf, FILE, KnownBreak)
