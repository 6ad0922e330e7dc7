"""python -m sweep.merge: one report of the shards of a night."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sweep import report
from sweep.case import folder as sweep_folder
from sweep.case.labels import Case
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, Argument, Usage
from sweep.errors import MachineryError, RequestError
from sweep.files import ConfDirs, write_text
from sweep.history import html
from sweep.history.reports import LAST, past_of
from sweep.history.view import View
from sweep.report import Report, Result
from sweep.report.past import NO_PAST, Past
from sweep.session.results import load_all
from sweep.store import Reader, past

USAGE = Usage(
    "sweep.merge",
    "One report of several sweeps, as of the shards of a night: summary.md, details.md,"
    "\nmatrix.html and junit.xml. Verdicts are those that the sweeps ended with. With"
    "\nMLFLOW_TRACKING_URI it says what regressed, and writes history.html. Exit codes are a"
    "\nsweep's: 0 all good, 1 a case failed, 2 wrong request, 3 a shard or a case has no result.",
    "python -m sweep.merge outputs=shards into=merged",
    (
        Argument("outputs", "the folder in which the sweeps' folders lie", "outputs"),
        Argument("into", "where the report goes", "outputs/merged"),
    ),
)


def main(values: Mapping[str, str], conf: ConfDirs) -> int:
    """Merge the sweeps of a folder; returns the exit code; raises RequestError."""
    outputs, into = Path(values[OUTPUTS.name]), Path(values["into"])
    folders = sweep_folder.known(outputs)
    if not folders:
        raise RequestError(f"outputs={outputs}: no sweep lies there; name the folder of the shards")
    plans = [sweep_folder.read_plan(folder) for folder in folders]
    results = _results(folders, into, conf)
    about = _report(folders, plans, results)
    view = _nights(outputs, plans)
    if view is not None:
        about = replace(about, past=_past(view, results))
        write_text(into / html.NAME, html.page(view))
    report.write_report(into, about)
    problem = _problem(about, plans)
    report.show(into, results, problem)
    return report.exit_code(results, problem)


def _results(folders: Sequence[Path], into: Path, conf: ConfDirs) -> list[Result]:
    """The latest of each case; a page in `into` leads to its folder."""
    found: dict[str, Result] = {}
    for folder in folders:
        for result in load_all(sweep_folder.case_dirs(folder), conf):
            if not result.interrupted:
                link = os.path.relpath(result.folder.absolute(), into.absolute())
                found[result.case.id] = replace(result, link=f"{quote(link)}/")
    return list(found.values())


def _report(
    folders: Sequence[Path], plans: Sequence[Mapping[str, Any]], results: Sequence[Result]
) -> Report:
    done = {result.case.id for result in results}
    missing: dict[str, Case] = {}
    for folder in folders:
        missing |= {case.id: case for case in report.not_run(folder, results)}
    more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    return Report(
        sweep_id=f"{folders[0].name}{more}",
        results=results,
        missing=[case for case in missing.values() if case.id not in done],
        environment=plans[-1].get("environment", {}),
        experiment=", ".join(dict.fromkeys(str(plan["experiment"]) for plan in plans)),
        spared="; ".join(
            dict.fromkeys(str(plan[sweep_folder.SPARED]) for plan in plans if _is_spared(plan))
        ),
    )


def _is_spared(plan: Mapping[str, Any]) -> bool:
    return bool(plan.get(sweep_folder.SPARED))


def _nights(outputs: Path, plans: Sequence[Mapping[str, Any]]) -> View | None:
    """The nights up to the last of the sweeps; None where no store has them."""
    reader = Reader.at(outputs)
    if not reader.location.exists:
        return None
    try:
        last = reader.find(str(plans[-1]["sweep_id"]), str(plans[-1]["experiment"]))
        return View.of(past.sweeps(reader, last, LAST, write=False))
    except (MachineryError, RequestError) as error:
        print(f"without the nights before: {error}", file=sys.stderr)
        return None


def _past(view: View, results: Sequence[Result]) -> Past:
    ids = {result.case.id for result in results}
    return past_of(view, ids) if view.cases else NO_PAST


def _problem(about: Report, plans: Sequence[Mapping[str, Any]]) -> str | None:
    """What is missing of the night: whole shards, or cases."""
    said = [f"shard {shard} left no report" for shard in _missing_shards(plans)]
    if about.missing:
        all_of_them = len(about.missing) + len(about.results)
        said.append(f"{len(about.missing)} of {all_of_them} cases have no result")
    return "; ".join(said) or None


def _missing_shards(plans: Sequence[Mapping[str, Any]]) -> list[str]:
    """`3/4` where 1/4, 2/4 and 4/4 are there."""
    words = [str(word) for plan in plans for word in plan.get("argv", [])]
    there = {word.removeprefix("shard=") for word in words if word.startswith("shard=")}
    counts = {shard.partition("/")[2] for shard in there if shard.partition("/")[2].isdecimal()}
    return [
        f"{number}/{count}"
        for count in sorted(counts)
        for number in range(1, int(count) + 1)
        if f"{number}/{count}" not in there
    ]


if __name__ == "__main__":
    sys.exit(arguments.run(USAGE, main))
