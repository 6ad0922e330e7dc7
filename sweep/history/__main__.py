"""`python -m sweep.history`: every case over the last nights."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console

from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, Argument, Usage
from sweep.errors import RequestError
from sweep.files import ConfDirs, is_inside, write_json, write_text
from sweep.history import html, text
from sweep.history.commits import Commits
from sweep.history.data import data
from sweep.history.view import View
from sweep.provenance import ROOT
from sweep.report.lines import say_whole
from sweep.store import Reader, past

USAGE = Usage(
    "sweep.history",
    "Every case over the last nights: its verdicts, since when it is as it is, how often it passed,"
    "\nverdicts that changed at the same commit and versions, the nearest that it came to each"
    "\nthreshold, and what moved when it changed. A page is written beside the last night's"
    "\nmatrix.html. Exit codes: 0, whatever the nights were; 2 wrong request; 3 no store.",
    "python -m sweep.history suite=nightly last=30",
    (
        Argument(
            "suite", "whose nights, as in nightly; else that of the latest sweep", optional=True
        ),
        Argument("case", "an id, or a pattern as in 'qwen3*-single-*'; else all", optional=True),
        Argument("last", "how many nights", "30"),
        Argument("html", "write the page there", optional=True),
        Argument(
            "json",
            "write all of it there; - for the terminal, in place of the table",
            optional=True,
        ),
        Argument(
            "repo", "the trainer's repository, for the commits between two nights", optional=True
        ),
        Argument("rebuild", "true: make the summaries anew from the runs of the cases", "false"),
        OUTPUTS,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Show the nights that the command line asks for; returns the exit code."""
    return arguments.run(USAGE, _run, argv)


def _run(values: Mapping[str, str], _conf: ConfDirs) -> int:
    last, anew = _number(values["last"]), values["rebuild"]
    if anew not in ("true", "false"):
        raise RequestError(f"rebuild={anew}: say true or false")
    outputs, pattern = Path(values["outputs"]), values.get("case")
    reader = Reader.at(outputs)
    latest = reader.find("latest", values.get("suite"))
    sweeps = past.sweeps(reader, latest, last, anew == "true")
    view = View.of(sweeps, Commits(_repo(values.get("repo"))))
    if pattern is not None:
        view = _narrowed(view, pattern)
    if values.get("json") == "-":
        print(json.dumps(data(view), indent=1))
    else:
        text.show(view, Console())
    _write(view, values, None if pattern else outputs / latest.sweep_id)
    return 0


def _write(view: View, values: Mapping[str, str], beside: Path | None) -> None:
    """The files that are asked for, else the page in the last night's folder if it is here."""
    if (where := values.get("json")) not in (None, "-"):
        write_json(Path(str(where)), data(view))
    page = Path(values["html"]) if "html" in values else None
    if page is None and beside is not None and is_inside(beside.parent, beside.name):
        page = beside / html.NAME if beside.is_dir() else None
    if page is not None:
        write_text(page, html.page(view))
        say_whole(Console(stderr=values.get("json") == "-"), "page", str(page))


def _narrowed(view: View, pattern: str) -> View:
    cases = [case for case in view.cases if fnmatchcase(case.case_id, pattern)]
    if not cases:
        some = ", ".join(case.case_id for case in view.cases[:5])
        raise RequestError(f"case={pattern}: no such case in {view.title}; there are: {some}")
    return View(view.experiment, view.nights, cases, view.commits)


def _number(value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 10_000:
        raise RequestError(f"last={value}: say a number of nights, as in last=30")
    return int(value)


def _repo(value: str | None) -> Path:
    if value is not None and not Path(value).is_dir():
        raise RequestError(f"repo={value}: no such folder; name the trainer's repository")
    return ROOT if value is None else Path(value)


if __name__ == "__main__":
    sys.exit(main())
