"""The compiler's own log: how to switch it on, and its entries, whichever process wrote them.

`TORCH_LOGS` needs nothing of the trainer, and its text stays in the logs that people read. A
structured trace (`TORCH_TRACE`) says the same, but writes every frame's bytecode and guards with
it: megabytes a rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

WANTED = (
    "graph_breaks",
    "recompiles",
    # Neither of them says that anything was compiled. At level INFO this module logs one line a
    # captured graph ("Step 2: calling compiler function inductor"); the artifacts that show graphs
    # (graph_code, graph_sizes) print each with all its nodes.
    "torch._dynamo.output_graph",
)
# These change the format or leave entries out.
_UNWANTED = ("TORCH_LOGS_FORMAT", "TORCH_LOGS_TRACE_ID_FILTER")

# [rank0]:V0131 12:00:00.000000 4242 torch/_dynamo/guards.py:99] [0/1] [__recompiles] text
_LINE = re.compile(
    r"(?:\[rank(?P<rank>\d+)\]:)?(?P<head>[VIWEC]\d{4} [\d:.]+ (?P<pid>\d+) \S+?:\d+\]"
    r"(?: \[(?P<compile_id>[-!\d/_]+)\])?(?: \[__(?P<artifact>\w+)\])?)(?: (?P<text>.*))?$"
)
# Two entries of one place can carry the same time.
_STARTS = ("Graph break in ", "Graph break (", "Graph break: ", "Recompiling function ", "Step ")


@dataclass
class LogEntry:
    """One message; the prefix of its lines identifies the process that wrote it."""

    pid: str
    rank: str | None  # known once the process group is there
    compile_id: str  # frame/compilation_attempt, empty outside of one
    artifact: str | None
    text: str


def log_variables(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with the log switched on in its default format, in addition to the user's choices."""
    asked = [word for word in env.get("TORCH_LOGS", "").split(",") if word]
    kept = {name: value for name, value in env.items() if name not in _UNWANTED}
    return {**kept, "TORCH_LOGS": ",".join(dict.fromkeys([*asked, *WANTED]))}


def entries(lines: Iterable[str]) -> Iterator[LogEntry]:
    """Yield the entries of a log, each once its last line was read; other lines are skipped."""
    unfinished: dict[str, tuple[str, LogEntry]] = {}  # by process, with the prefix of its lines
    for line in lines:
        parts = _LINE.search(line.rstrip("\r\n"))
        if parts is None:
            continue
        pid, head, text = parts["pid"], parts["head"], parts["text"] or ""
        before = unfinished.get(pid)
        if before is not None and before[0] == head and not text.startswith(_STARTS):
            before[1].text += "\n" + text
            continue
        if before is not None:
            yield before[1]
        entry = LogEntry(pid, parts["rank"], parts["compile_id"] or "", parts["artifact"], text)
        unfinished[pid] = head, entry
    yield from (entry for _, entry in unfinished.values())
