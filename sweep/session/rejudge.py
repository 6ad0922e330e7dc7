"""A whole sweep, read back from MLflow and judged with everything it is compared with.

Nothing that was recorded is changed by it but verdicts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from sweep.case.labels import Case
from sweep.checks import Context
from sweep.facts import Facts
from sweep.files import ConfDirs, config_dir_of, inside
from sweep.judge.verdict import Judgement, judge, unavailable, unreadable
from sweep.report import Result
from sweep.report.runs import Run
from sweep.session.again import with_references
from sweep.store import CaseRecord, Reader, SweepRecord, verdicts


def judge_recorded(
    reader: Reader, sweep: SweepRecord, folder: Path, conf: ConfDirs
) -> list[Result]:
    """The results of the sweep's cases, as planned; verdicts that changed are written to MLflow.

    `folder` is the sweep's; a case that is not there says where it was.
    """
    cases = reader.cases(sweep)
    context = Context(
        sweep=with_result((case.case_id, case.facts) for case in cases),
        last_good=reader.last_good(sweep),
        pinned=reader.pinned(sweep),
        conf=conf,
    )
    plan = reader.plan(sweep)
    found = [_result(case, context, reader, sweep, folder) for case in cases]
    results = with_references(found, plan.get("argv", []))
    for case, result in zip(cases, results, strict=True):
        verdicts.update(reader.location.client, case, result)
    return _in_order(results, plan["cases"])


def with_result(cases: Iterable[tuple[str, Facts | None]]) -> dict[str, Facts]:
    """Facts by case id, of the cases that have a result."""
    return {case_id: facts for case_id, facts in cases if facts and not facts.interrupted}


def _result(
    case: CaseRecord, context: Context, reader: Reader, sweep: SweepRecord, folder: Path
) -> Result:
    here = inside(folder, case.case_id)
    return Result(
        judgement=_judged(case, context),
        folder=here,
        origin="" if here.is_dir() else case.tags.get("folder", ""),
        command=case.tags.get("command", ""),
        facts=case.facts,
        run=Run(uri=reader.location.shown, run_id=case.run_id, experiment_id=sweep.experiment_id),
    )


def _judged(case: CaseRecord, context: Context) -> Judgement:
    if case.facts is None:
        said = {key: value for key, value in case.params.items() if value != "None"}  # of no fault
        labels = Case.model_validate({**said, "id": case.case_id})
        if case.damaged:
            return unreadable(labels, case.damaged)
        return unavailable(labels, case.tags.get("unavailable", "no reason is recorded"))
    return judge(case.facts, context)


def _in_order(results: Sequence[Result], planned: Sequence[str]) -> list[Result]:
    """As they were planned; they may have run in any order."""
    place = {case_id: number for number, case_id in enumerate(planned)}
    return sorted(results, key=lambda result: place.get(result.case.id, len(place)))


def without_own(results: Iterable[Result], conf: ConfDirs) -> str:
    """A warning where the cases ran with a --config-dir and are judged without one; else empty."""
    folders = config_dirs(results)
    if not folders or conf.own is not None:
        return ""
    return f"judged without the thresholds and known failures of --config-dir {', '.join(folders)}"


def config_dirs(results: Iterable[Result]) -> list[str]:
    """The folders that the cases ran with besides `conf/`."""
    return sorted({folder for result in results if (folder := _own_of(result.command))})


def _own_of(command: str) -> str | None:
    try:
        return config_dir_of(shlex.split(command))[0]
    except ValueError:  # cut within quotes: MLflow keeps no more of it
        return None
