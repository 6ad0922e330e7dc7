"""The end of a sweep: its cases judged together, its reports written, its run in MLflow ended."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sweep import report
from sweep.case import folder as sweep_folder
from sweep.case.folder import ASIDE, case_dirs, read_plan
from sweep.checks import Context
from sweep.errors import MachineryError, RequestError, told
from sweep.files import ConfDirs
from sweep.history import reports
from sweep.judge import findings
from sweep.judge.verdict import judge
from sweep.locate import failures
from sweep.report import Result
from sweep.report.past import NO_PAST, Past
from sweep.session.again import with_references
from sweep.session.notify import Notice
from sweep.session.rejudge import judge_recorded, with_result
from sweep.session.results import load_all
from sweep.store import End, Reader, Writer


def close(
    writer: Writer,
    folder: Path,
    results: Sequence[Result],
    end: End,
    conf: ConfDirs,
    locates: bool = False,
    notice: Notice | None = None,
) -> tuple[list[Result], str | None]:
    """Judge a sweep that has just ended, write its reports, end its run.

    `locates`: look into each failed comparison first, for its line in the reports.

    Returns the results as judged, and what is wrong with MLflow or the disk, if anything; each step
    is done as far as the others allow. `notice` is sent at the end.
    """
    problems: list[str] = []
    has_run = (
        writer.has_begun or any(result.facts for result in results) or (folder / ASIDE).exists()
    )
    if not has_run:
        with _noted(problems):
            if results or not end.unfinished:
                _report(folder, results)
        return list(results), problems[0] if problems else None
    judged = list(results)
    with _noted(problems):
        judged = _read_back(writer, folder, results, conf)
    is_recorded = not problems
    if not is_recorded:
        with _noted(problems):
            judged = _on_disk(folder, results, conf)
    with _noted(problems):
        keep(judged)
    if locates:
        failures.look_into(folder, judged)
    past = NO_PAST
    with _noted(problems):
        past = _report(folder, judged, writer if is_recorded else None)
    if complaint := report.draw_all(judged):
        print(complaint, file=sys.stderr)
    if is_recorded:
        with _noted(problems):
            writer.finish(judged, end)
    if notice is not None and not end.unfinished:
        with _noted(problems):
            notice.send(report.report_of(folder, judged, past), problems[0] if problems else None)
    return judged, problems[0] if problems else None


def _report(folder: Path, results: Sequence[Result], store: Writer | None = None) -> Past:
    """Write the reports, with the nights before where the store is there to say; returns those."""
    try:
        if store is not None:
            reader = Reader(store.location)
            return store.call(lambda: reports.write(reader, folder, results))
        report.write(folder, results)
        return NO_PAST
    except MachineryError:
        report.write(folder, results)  # without them
        raise
    finally:
        sweep_folder.end(folder)


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """What goes wrong is a line in `problems`, and the next step is tried all the same."""
    try:
        yield
    except (MachineryError, RequestError, OSError) as error:
        problems.append(told(error)[0])


def keep(results: Sequence[Result]) -> None:
    """Write findings.json of each case whose folder is here."""
    for result in results:
        if result.folder.is_dir():
            findings.save(result.judgement, result.folder)


def _read_back(
    writer: Writer, folder: Path, results: Sequence[Result], conf: ConfDirs
) -> list[Result]:
    """The results as MLflow has them; one that is not there stays what it is."""
    for result in results:
        if result.facts is None:
            writer.record(result)
    writer.settle()
    reader = Reader(writer.location)
    experiment = str(read_plan(folder)["experiment"])
    judged = writer.call(
        lambda: judge_recorded(reader, reader.find(folder.name, experiment), folder, conf)
    )
    known = {result.case.id: result for result in judged}
    return [known.get(result.case.id, result) for result in results]


def _on_disk(folder: Path, results: Sequence[Result], conf: ConfDirs) -> list[Result]:
    """Compared with each other and no earlier sweep: MLflow does not say what there was."""
    everything = load_all(case_dirs(folder), conf)
    known = Context(with_result((result.case.id, result.facts) for result in everything), conf=conf)
    judged = [
        replace(result, judgement=judge(result.facts, known)) if result.facts else result
        for result in results
    ]
    return with_references(judged, read_plan(folder).get("argv", []))
