"""python -m sweep.calibrate: train correct and broken cases, and put thresholds between them."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sweep import conf_file
from sweep.calibrate import config, document
from sweep.calibrate.populations import Plan, populations
from sweep.calibrate.rule import Population
from sweep.checks import thresholds
from sweep.checks.thresholds import Table, Threshold
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, Argument, Usage
from sweep.errors import MachineryError, RequestError
from sweep.files import ConfDirs, write_text
from sweep.provenance import LIBRARIES
from sweep.store import Reader, SweepRecord

CHECK = "--check"
USAGE = Usage(
    "sweep.calibrate",
    "Derive thresholds from correct and from broken runs, and write conf/"
    f"{thresholds.CALIBRATED}.\nWith {CHECK}, only say whether today's thresholds still separate"
    " the two.",
    "python -m sweep.calibrate suite=resume_calibration",
    (
        Argument("suite", "the suite that trains both", "resume_calibration"),
        Argument("sweep", "one that was run already, or latest; else it is run now", optional=True),
        Argument("docs", "a folder that gets the page and the plot as well", optional=True),
        OUTPUTS,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Calibrate or check; returns the exit code, 1 if a figure does not separate."""
    argv = list(sys.argv[1:] if argv is None else argv)
    is_check = CHECK in argv
    rest = [word for word in argv if word != CHECK]
    return arguments.run(USAGE, lambda values, conf: _run(values, conf, is_check), rest)


def _run(values: Mapping[str, str], conf: ConfDirs, is_check: bool) -> int:
    plan, outputs = plan_of(values["suite"], conf), Path(values["outputs"])
    if "sweep" not in values:
        train(values["suite"], outputs, conf)
    reader = Reader.at(outputs)
    sweep = reader.find(values.get("sweep", "latest"), values["suite"])
    every = {case.case_id: case.facts for case in reader.cases(sweep) if case.facts is not None}
    table = thresholds.table(conf)
    measured = populations(every, plan, table)
    versions = {name: sweep.tags[name] for name in LIBRARIES if name in sweep.tags}
    if not versions and every:
        environment = next(iter(every.values())).environment
        versions = {name: environment[name] for name in LIBRARIES if name in environment}
    if is_check:
        return checked(measured, table)
    return _calibrated(measured, sweep, versions, reader, values, conf.own or conf.shipped)


def plan_of(suite: str, conf: ConfDirs) -> Plan:
    """Figure -> the faults that the suite plants for it; raises RequestError."""
    path = conf.files(f"suite/{suite}.yaml")[-1]
    if not path.is_file():
        names = ", ".join(sorted(file.stem for file in path.parent.glob("*.yaml")))
        raise RequestError(f"suite={suite}: no such suite; there are {names}")
    plan: Plan = conf_file.read(path).get("calibrates", {})
    if not plan:
        raise RequestError(f"suite={suite}: {path} has no `calibrates`; use resume_calibration")
    return plan


def train(suite: str, outputs: Path, conf: ConfDirs) -> None:
    """Run the suite, in which broken cases fail as they should. Raises MachineryError."""
    command = [sys.executable, "-m", "sweep", "-m", f"suite={suite}", f"outputs={outputs}"]
    if conf.own:
        command += ["--config-dir", str(conf.own)]
    code = subprocess.run(command, check=False).returncode
    if code not in (0, 1):
        raise MachineryError(f"suite={suite} could not be run (exit code {code}), see above")


def checked(measured: Sequence[Population], table: Table) -> int:
    """Print for each threshold in use whether it separates; returns the exit code."""
    failed = False
    for population in measured:
        if population.is_mean and population.refusal and configured(population, table).mean is None:
            print(f"{population.name}: none in use; {population.refusal}")
            continue
        limit = in_use(population, table)
        against = population.refusal or population.still_separates(limit)
        separates = (
            f"separates {len(population.correct)} correct runs (at most"
            f" {population.largest_correct:.1e}) from {len(population.broken)} broken ones"
            f" (at least {population.weakest.value:.1e})"
        )
        print(f"{population.name}: threshold {limit:.1e} {against or separates}")
        failed |= bool(against)
    return int(failed)


def separated(measured: Sequence[Population]) -> list[Population]:
    """Those that have a threshold; a mean counts only if its figure has one too."""
    names = {population.name for population in measured if population.threshold is not None}
    return [
        population
        for population in measured
        if {population.name, population.name.removesuffix(".mean")} <= names
    ]


def in_use(population: Population, table: Table) -> float:
    """Today's threshold; raises RequestError if there is none."""
    limit = configured(population, table)
    if not population.is_mean:
        return limit.value
    if limit.mean is None:
        raise RequestError(
            f"{population.name}: no bound of the mean is configured; run sweep.calibrate"
        )
    return limit.mean


def configured(population: Population, table: Table) -> Threshold:
    """Today's entry, including the bound of the mean; raises RequestError if there is none."""
    return table.of(population.check, population.figure, population.device, population.dtype)


def _calibrated(
    measured: Sequence[Population], sweep: SweepRecord, versions: Mapping[str, str], reader: Reader,
    values: Mapping[str, str], conf_dir: Path,
) -> int:  # fmt: skip
    folder = Path(values["outputs"]) / sweep.sweep_id
    write_text(folder / document.PAGE, document.page(measured, sweep.sweep_id, versions))
    document.draw(measured, folder / document.PLOT)
    _record(reader, sweep, measured, folder)
    given = separated(measured)
    for population in given:
        print(
            f"{population.name}: threshold {population.threshold:.1e};"
            f" {population.weakest.case} is off {population.separation:.0f} times as far as any"
            " correct run"
        )
    if given:
        day = dt.datetime.now(dt.UTC).date()
        print(
            f"written: {config.write(conf_dir, given, sweep.sweep_id, versions, day)},"
            f" {folder / document.PAGE}"
        )
    if "docs" in values:
        for name in (document.PAGE, document.PLOT):
            shutil.copy(folder / name, Path(values["docs"]) / name)
    refused = [population.refusal for population in measured if population.refusal]
    for reason in refused:
        print(f"no threshold: {reason}", file=sys.stderr)
    return int(bool(refused))


def _record(
    reader: Reader, sweep: SweepRecord, measured: Sequence[Population], folder: Path
) -> None:
    """Log the page, the plot and the figures to the sweep's own run."""
    client = reader.location.client
    with reader.location.writing("log the calibration"):
        for name in (document.PAGE, document.PLOT):
            client.log_artifact(sweep.run_id, str(folder / name))
        for population in measured:
            if population.threshold is not None:
                mean = "_mean" if population.is_mean else ""
                key = f"calibration/{population.check}_{population.figure}{mean}"
                client.log_metric(sweep.run_id, f"{key}_threshold", population.threshold)
                client.log_metric(sweep.run_id, f"{key}_separation", population.separation)


if __name__ == "__main__":
    sys.exit(main())
