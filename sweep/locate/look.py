"""One look into a case of a sweep's folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.case.folder import case_dirs, readable
from sweep.case.labels import layout_name
from sweep.case.planned import Planned
from sweep.errors import RequestError, unknown
from sweep.files import write_json
from sweep.judge import findings
from sweep.locate import references, report
from sweep.locate.place import Place
from sweep.locate.reading import Run
from sweep.locate.references import Kind, Reference
from sweep.locate.report import Report
from sweep.locate.running import Runs, Taps
from sweep.locate.search import Search
from sweep.report.result import LOCATED
from sweep.schema import Settings

FEW = 2  # steps that are run first, where nobody knows at which the difference shows
LAYERED = "sft"  # the adapter whose trainer compiles layer by layer: from outside they can be seen
FOLDER, _, ANSWER = LOCATED.partition("/")


def look(sweep: Path, case_id: str, against: str | None = None, keep: bool = False) -> Report:
    """Run the case and its reference with taps on, and say where they part first.

    Raises RequestError, and MachineryError for a launch that leaves nothing.
    """
    started = time.monotonic()
    planned = _planned(sweep)
    if case_id not in planned:
        raise RequestError(unknown("case", case_id, planned))
    ours = planned[case_id]
    if ours.unavailable is not None:
        raise RequestError(f"{case_id} cannot run here: {ours.unavailable}")
    if ours.settings.layout.nodes > 1:
        raise RequestError(f"{case_id} runs on several nodes; name a case that runs on one")
    facts = {name: found for name in planned if (found := facts_file.load_or_why(sweep / name)[0])}
    reference = references.choose(ours, planned, facts, findings.load(sweep / case_id), against)
    folder = sweep / case_id / FOLDER
    place, notes = _found(ours.settings, reference, folder)
    answer = Report(case_id, reference.name, place, notes, time.monotonic() - started)
    if not keep:
        for taps in folder.rglob("inside-*-*.pt"):
            taps.unlink()
    write_json(folder / ANSWER, answer.as_json())
    return answer


def _planned(sweep: Path) -> Mapping[str, Planned]:
    names = [folder.name for folder in case_dirs(sweep)]
    files = readable(names, lambda name: case_file.read(sweep / name))
    return {name: file.planned for name, file in files.items()}


def _found(
    settings: Settings, reference: Reference, folder: Path
) -> tuple[Place | None, list[str]]:
    """The place, and what else is to be said."""
    steps = reference.steps or min(FEW, settings.steps)
    runs = Runs(settings, replace(reference, steps=steps), folder)
    taps = runs.taps()
    place, notes = _first(taps, settings, reference), []
    if place is None and steps < settings.steps:
        runs = Runs(settings, replace(reference, steps=settings.steps), folder)
        taps = runs.taps()
        place = _first(taps, settings, reference)
    if settings.feature.compile:
        notes.append("it was run uncompiled, and differs there too")
        if place is None:
            notes = ["uncompiled, the difference goes away: it is the compiler's"]
            if settings.trainer.adapter == LAYERED:
                compiled = Taps(runs.compiled(settings), taps.theirs, taps.again)
                place = _first(compiled, settings, reference)
    return place, notes


def _first(taps: Taps, settings: Settings, reference: Reference) -> Place | None:
    """The earliest of what the oracle says of the documents and of what differs inside."""
    is_sharded = (
        layout_name(settings.layout) != "single" and reference.kind is not Kind.uninterrupted
    )
    runs = (Run(taps.ours), Run(taps.theirs), Run(taps.again))
    has_rows = reference.kind is not Kind.oracle and settings.feature.packed  # not one by one
    inside = Search(*runs, is_sharded, taps.begins, has_rows).first()
    data = min(map(report.of_documents, taps.problems), key=lambda one: one.step, default=None)
    if data is not None and (inside is None or data.step <= inside.step):
        return data
    return inside
