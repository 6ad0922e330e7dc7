"""`python -m sweep.judge`: judge a recorded sweep again, from what MLflow has of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep import report
from sweep.case.folder import PLAN
from sweep.cli import arguments
from sweep.cli.arguments import EXPERIMENT, OUTPUTS, SWEEP, Usage
from sweep.files import ConfDirs, inside, write_json
from sweep.history import reports
from sweep.judge.verdict import ready
from sweep.session.closing import keep
from sweep.session.rejudge import judge_recorded, without_own
from sweep.store import End, Reader, SweepRecord, ending

USAGE = Usage(
    "sweep.judge",
    "Judge a recorded sweep again, with today's thresholds and known failures.\n"
    "Exit codes are the sweep's: 0 all good, 1 a case failed, 2 wrong request, 3 no store.",
    "python -m sweep.judge sweep=latest experiment=nightly",
    (SWEEP, EXPERIMENT, OUTPUTS),
)
GOES_ON = ("RUNNING", "SCHEDULED")  # somebody else will end the sweep's run
ELSEWHERE = "judged"  # in the output folder: reports of sweeps that ran on other machines


def main(argv: Sequence[str] | None = None) -> int:
    """Judge the sweep that the command line names; returns the exit code."""
    return arguments.run(USAGE, _run, argv)


def _run(values: Mapping[str, str], conf: ConfDirs) -> int:
    ready(conf)
    outputs = Path(values["outputs"])
    reader = Reader.at(outputs)
    sweep = reader.find(values["sweep"], values.get("experiment"))
    folder = _folder(outputs, reader, sweep)
    with reader.location.writing("take the verdicts"):
        return _judge_again(reader, sweep, folder, conf)


def _folder(outputs: Path, reader: Reader, sweep: SweepRecord) -> Path:
    """The sweep's own, where this is its machine; else one for its reports, that is no sweep's."""
    here = inside(outputs, sweep.sweep_id)
    if (here / PLAN).is_file():
        return here
    folder = inside(outputs / ELSEWHERE, sweep.sweep_id)
    write_json(folder / PLAN, reader.plan(sweep))
    return folder


def _judge_again(reader: Reader, sweep: SweepRecord, folder: Path, conf: ConfDirs) -> int:
    client = reader.location.client
    ending.end_dead_runs(client, sweep.experiment_id)
    sweep = reader.find(sweep.sweep_id, sweep.experiment)  # one of them may have been its run
    judged = judge_recorded(reader, sweep, folder, conf)
    results = [result for result in judged if not result.interrupted]
    missing = _missing(len(results), len(reader.plan(sweep)["cases"]))
    keep(results)
    reports.write(reader, folder, results)
    report.show(folder, results, missing)
    if said := without_own(results, conf):
        print(said, file=sys.stderr)
    if sweep.status not in GOES_ON:
        end = End(interrupted=missing is not None)
        ending.finish(client, sweep.run_id, folder, results, end)
    return report.exit_code(results, missing)


def _missing(ended: int, planned: int) -> str | None:
    """What to say of a sweep that did not run to its end."""
    return f"{planned - ended} of {planned} cases have no result" if ended < planned else None


if __name__ == "__main__":
    sys.exit(main())
