"""python -m sweep.calibrate: run what is right and what is broken, and put thresholds between."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from sweep.calibrate import config, page
from sweep.calibrate.populations import Plan, populations
from sweep.calibrate.rule import Population
from sweep.checks import thresholds
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, Argument, Usage
from sweep.errors import MachineryError, RequestError
from sweep.files import conf_dir, conf_files, own_conf_dir, write_text
from sweep.provenance import LIBRARIES
from sweep.store import Reader, SweepRecord

CHECK = "--check"
USAGE = Usage(
    "sweep.calibrate",
    "Derive thresholds from correct runs and from broken ones, and write conf/"
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
    """Calibrate or check; returns the exit code: 1 where a figure does not separate."""
    argv = list(sys.argv[1:] if argv is None else argv)
    is_check = CHECK in argv
    rest = [word for word in argv if word != CHECK]
    return arguments.run(USAGE, lambda values: _run(values, is_check), rest)


def _run(values: Mapping[str, str], is_check: bool) -> int:
    plan, outputs = plan_of(values["suite"]), Path(values["outputs"])
    if "sweep" not in values:
        train(values["suite"], outputs)
    reader = Reader.at(outputs)
    sweep = reader.find(values.get("sweep", "latest"), values["suite"])
    every = {one.case_id: one.facts for one in reader.cases(sweep) if one.facts is not None}
    found = populations(every, plan)
    versions = {name: sweep.tags[name] for name in LIBRARIES if name in sweep.tags}
    if not versions and every:
        environment = next(iter(every.values())).environment
        versions = {name: environment[name] for name in LIBRARIES if name in environment}
    if is_check:
        return checked(found)
    return _calibrated(found, sweep, versions, reader, values)


def plan_of(suite: str) -> Plan:
    """Which faults a suite plants for which figure; raises RequestError."""
    path = conf_files(f"suite/{suite}.yaml")[-1]
    if not path.is_file():
        names = ", ".join(sorted(one.stem for one in path.parent.glob("*.yaml")))
        raise RequestError(f"suite={suite}: no such suite; there are {names}")
    plan: Plan = yaml.safe_load(path.read_text("utf-8")).get("calibrates", {})
    if not plan:
        raise RequestError(f"suite={suite}: {path} has no `calibrates`; use resume_calibration")
    return plan


def train(suite: str, outputs: Path) -> None:
    """Run the suite; broken cases fail, which is what they are for. Raises MachineryError."""
    command = [sys.executable, "-m", "sweep", "-m", f"suite={suite}", f"outputs={outputs}"]
    if own := own_conf_dir():
        command += ["--config-dir", str(own)]
    code = subprocess.run(command, check=False).returncode
    if code not in (0, 1):
        raise MachineryError(f"suite={suite} could not be run (exit code {code}), see above")


def checked(found: Sequence[Population]) -> int:
    """Say of each threshold in use whether it separates; returns the exit code."""
    failed = False
    for one in found:
        if one.is_mean and one.refusal and configured(one).mean is None:
            print(f"{one.name}: none in use; {one.refusal}")
            continue
        limit = in_use(one)
        against = one.refusal or one.still_separates(limit)
        print(f"{one.name}: threshold {limit:.1e} {against or 'separates'}"
              + ("" if against else f" {len(one.correct)} correct runs (at most"
                 f" {one.largest_correct:.1e}) from {len(one.broken)} broken ones (at least"
                 f" {one.weakest.value:.1e})"))  # fmt: skip
        failed |= bool(against)
    return int(failed)


def separated(found: Sequence[Population]) -> list[Population]:
    """Those that have a threshold; the bound of a mean goes with that of its figure."""
    names = {one.name for one in found if one.threshold is not None}
    return [one for one in found if {one.name, one.name.removesuffix(".mean")} <= names]


def in_use(one: Population) -> float:
    """Today's threshold; raises RequestError where there is none."""
    limit = configured(one)
    if not one.is_mean:
        return limit.value
    if limit.mean is None:
        raise RequestError(f"{one.name}: no bound of the mean is configured; run sweep.calibrate")
    return limit.mean


def configured(one: Population) -> thresholds.Threshold:
    """Today's, with the bound of the mean if it has one; raises RequestError without any."""
    return thresholds.of(one.check, one.figure, one.device, one.dtype)


def _calibrated(
    found: Sequence[Population], sweep: SweepRecord, versions: Mapping[str, str], reader: Reader,
    values: Mapping[str, str],
) -> int:  # fmt: skip
    folder = Path(values["outputs"]) / sweep.sweep_id
    write_text(folder / page.PAGE, page.page(found, sweep.sweep_id, versions))
    page.draw(found, folder / page.PLOT)
    _record(reader, sweep, found, folder)
    given = separated(found)
    for one in given:
        print(f"{one.name}: threshold {one.threshold:.1e}; {one.weakest.case} is off"
              f" {one.separation:.0f} times as far as any correct run")  # fmt: skip
    if given:
        day = dt.datetime.now(dt.UTC).date()
        place = own_conf_dir() or conf_dir()
        print(f"written: {config.write(place, given, sweep.sweep_id, versions, day)},"
              f" {folder / page.PAGE}")  # fmt: skip
    if "docs" in values:
        for name in (page.PAGE, page.PLOT):
            shutil.copy(folder / name, Path(values["docs"]) / name)
    refused = [one.refusal for one in found if one.refusal]
    for reason in refused:
        print(f"no threshold: {reason}", file=sys.stderr)
    return int(bool(refused))


def _record(reader: Reader, sweep: SweepRecord, found: Sequence[Population], folder: Path) -> None:
    """Log the page, the plot and the figures to the sweep's own run."""
    client = reader.location.client
    with reader.location.writing("log the calibration"):
        for name in (page.PAGE, page.PLOT):
            client.log_artifact(sweep.run_id, str(folder / name))
        for one in found:
            if one.threshold is not None:
                mean = "_mean" if one.is_mean else ""
                key = f"calibration/{one.check}_{one.figure}{mean}"
                client.log_metric(sweep.run_id, f"{key}_threshold", one.threshold)
                client.log_metric(sweep.run_id, f"{key}_separation", one.separation)


if __name__ == "__main__":
    sys.exit(main())
