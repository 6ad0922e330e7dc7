"""A whole sweep, judged with everything it is compared with: what `python -m sweep.judge` does.

Facts come from MLflow, and verdicts go back there. Nothing that was recorded is changed by it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from sweep import report
from sweep.arguments import EXPERIMENT, OUTPUTS, SWEEP, Usage, run
from sweep.case import Case
from sweep.checks import Context
from sweep.errors import MachineryError
from sweep.facts import Facts
from sweep.files import write_json
from sweep.folder import PLAN, read_plan
from sweep.judge import Judgement, judge, ready, unavailable
from sweep.report import Result
from sweep.report.runs import Run
from sweep.results import FINDINGS, load_all
from sweep.store import CaseRecord, End, Reader, SweepRecord, Writer, ending, verdicts

USAGE = Usage(
    "sweep.judge",
    "Judge a recorded sweep again, with today's thresholds and known failures.\n"
    "Exit codes are the sweep's: 0 all good, 1 a case failed, 2 wrong request, 3 no store.",
    "python -m sweep.judge sweep=latest experiment=nightly",
    (SWEEP, EXPERIMENT, OUTPUTS),
)
GOES_ON = ("RUNNING", "SCHEDULED")  # somebody else will end the sweep's run
ELSEWHERE = "judged"  # in the output folder: reports of sweeps that ran on other machines


def main() -> int:
    """The command; returns the exit code."""
    return run(USAGE, _command)


def recorded(reader: Reader, sweep: SweepRecord, folder: Path) -> list[Result]:
    """The sweep's cases, read back from MLflow and judged; verdicts that changed are written.

    `folder` is the sweep's; a case that is not there says where it was.
    """
    cases = reader.cases(sweep)
    context = Context(
        sweep=_facts((case.case_id, case.facts) for case in cases),
        last_good=reader.last_good(sweep),
        pinned=reader.pinned(sweep),
    )
    results = [_result(case, context, reader, sweep, folder) for case in cases]
    for case, result in zip(cases, results, strict=True):
        verdicts.update(reader.location.client, case, result)
    return _in_order(results, reader.plan(sweep)["cases"])


def close(
    writer: Writer, folder: Path, results: Sequence[Result], end: End
) -> tuple[list[Result], str | None]:
    """Judge a sweep that has just ended, write its reports, end its run.

    Returns the results as judged, and what is wrong with MLflow; from disk where something is.
    """
    if not writer.has_begun and not any(one.facts for one in results):  # nothing ran
        if results or not end.unfinished:
            report.write(folder, results)
        return list(results), None
    try:
        judged = _read_back(writer, folder, results)
        problem = None
    except MachineryError as error:
        judged, problem = _on_disk(folder, results), str(error)
    keep(judged)
    report.write(folder, judged)
    if complaint := report.draw_all(judged):
        print(complaint, file=sys.stderr)
    try:
        if problem is None:
            writer.finish(judged, end)
    except MachineryError as error:
        problem = str(error)
    return judged, problem


def _read_back(writer: Writer, folder: Path, results: Sequence[Result]) -> list[Result]:
    """The results as MLflow has them; one that is not there stays what it is."""
    for result in results:
        if result.facts is None:
            writer.record(result)
    writer.settle()
    reader = Reader(writer.location)
    experiment = str(read_plan(folder)["experiment"])
    found = writer.call(lambda: recorded(reader, reader.find(folder.name, experiment), folder))
    known = {one.case.id: one for one in found}
    return [known.get(one.case.id, one) for one in results]


def _on_disk(folder: Path, results: Sequence[Result]) -> list[Result]:
    """Compared with each other and no earlier sweep: MLflow does not say what there was."""
    everything = load_all(folder / case_id for case_id in read_plan(folder)["cases"])
    known = Context(_facts((one.case.id, one.facts) for one in everything))
    return [replace(one, judgement=judge(one.facts, known)) if one.facts else one
            for one in results]  # fmt: skip


def keep(results: Sequence[Result]) -> None:
    """Write findings.json of each case whose folder is here."""
    for result in results:
        if result.folder.is_dir():
            write_json(result.folder / FINDINGS, result.judgement.model_dump(mode="json"))


def _command(arguments: dict[str, str]) -> int:
    ready()
    reader = Reader.at(Path(arguments["outputs"]))
    sweep = reader.find(arguments["sweep"], arguments.get("experiment"))
    folder = _folder(Path(arguments["outputs"]), reader, sweep)
    with reader.location.exclusive(), reader.location.answering("take the verdicts"):
        return _judge_again(reader, sweep, folder)


def _folder(outputs: Path, reader: Reader, sweep: SweepRecord) -> Path:
    """The sweep's own, where this is its machine; else one for its reports, that is no sweep's."""
    if (outputs / sweep.sweep_id / PLAN).is_file():
        return outputs / sweep.sweep_id
    folder = outputs / ELSEWHERE / sweep.sweep_id
    write_json(folder / PLAN, reader.plan(sweep))
    return folder


def _judge_again(reader: Reader, sweep: SweepRecord, folder: Path) -> int:
    client = reader.location.client
    ending.end_dead_runs(client, sweep.experiment_id)
    sweep = reader.find(sweep.sweep_id, sweep.experiment)  # one of them may have been its run
    results = [one for one in recorded(reader, sweep, folder) if not one.interrupted]
    missing = missing_results(len(results), len(reader.plan(sweep)["cases"]))
    keep(results)
    report.write(folder, results)
    report.show(folder, results, missing)
    if sweep.status not in GOES_ON:
        end = End(interrupted=missing is not None)
        ending.finish(client, sweep.run_id, folder, results, end)
    return report.exit_code(results, missing)


def missing_results(found: int, planned: int) -> str | None:
    """What to say of a sweep that did not run to its end."""
    return f"{planned - found} of {planned} cases have no result" if found < planned else None


def _result(
    case: CaseRecord, context: Context, reader: Reader, sweep: SweepRecord, folder: Path
) -> Result:
    here = folder / case.case_id
    return Result(
        judgement=_judged(case, context),
        folder=here if here.is_dir() else Path(case.tags["folder"]),
        command=case.tags["command"],
        facts=case.facts,
        run=Run(uri=reader.location.shown, run_id=case.run_id, experiment_id=sweep.experiment_id),
    )


def _judged(case: CaseRecord, context: Context) -> Judgement:
    if case.facts is None:
        labels = Case.model_validate({**case.params, "id": case.case_id})
        return unavailable(labels, case.tags.get("unavailable", "no reason is recorded"))
    return judge(case.facts, context)


def _facts(cases: Iterable[tuple[str, Facts | None]]) -> dict[str, Facts]:
    """By case id, of the cases that have a result."""
    return {case_id: facts for case_id, facts in cases if facts and not facts.interrupted}


def _in_order(results: Sequence[Result], planned: Sequence[str]) -> list[Result]:
    """As they were planned; they may have run in any order."""
    place = {case_id: number for number, case_id in enumerate(planned)}
    return sorted(results, key=lambda result: place.get(result.case.id, len(place)))
