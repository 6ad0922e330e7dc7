"""The name, params, tags, metrics, note and status of a case's run in MLflow."""

from __future__ import annotations

import getpass
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from sweep.checks import comparable
from sweep.facts import LaunchFacts, Step
from sweep.judge import Verdict
from sweep.report import Result, failure_note

STEP_METRICS = ("loss", "grad_norm", "lr", "tokens", "step_seconds", "peak_memory_gib")
LABELS = ("arch", "layout", "feature", "trainer", "scale", "device")
CHECK = "check."  # prefix of the tags with a check's outcome
MARGIN = "margin/"  # prefix of metrics: a check's farthest figure, as a multiple of its threshold
CURVES = {"Loss/train": "loss"}  # once more: the UI sorts sections, and capitals come first
NOTE = "mlflow.note.content"  # shown at the top of the run's page
TAG_LIMIT = 7900  # MLflow refuses 8000 characters
PARAM_LIMIT = 5900  # and 6000
NAME_LIMIT = 250


def name(text: str) -> str:
    """A valid key of a tag or metric: MLflow refuses brackets and most other characters."""
    safe = re.sub(r"[^\w\-. :/]", "_", text, flags=re.ASCII).lstrip("/")
    path = posixpath.normpath(safe[: NAME_LIMIT - 1])
    return f"_{path}" if path == "." or path.startswith("..") else path


def run_name(sweep_id: str, what: str) -> str:
    """`11-30 12:20 llama-single-base`: when the sweep began (UTC), then what the run is."""
    day, _, clock = sweep_id.partition("-")
    began = f"{day[4:6]}-{day[6:8]} {clock[:2]}:{clock[2:4]}"
    return f"{began} {what}"[:NAME_LIMIT]


def of_experiment(name: str) -> dict[str, str]:
    """Tags of a suite's experiment: its description, and that it is about model training."""
    about = f"suite `{name}`" if name != "adhoc" else "sweeps without a suite"
    note = (
        f"Sweeps of a distributed trainer, {about}: a run per sweep (`tags.kind = 'sweep'`, with"
        " counts by verdict, seconds and margins to chart over time), per case (`tags.kind ="
        " 'case'`) and per resumed launch. `python -m sweep.history` shows every case over nights."
    )
    return {NOTE: note, "mlflow.experimentKind": "custom_model_development"}


def origin(environment: Mapping[str, str], command: str = "") -> dict[str, str]:
    """What MLflow shows as a run's user, source and version."""
    sha = environment.get("git_sha", "unknown")
    tags = {
        "mlflow.source.name": command or "python -m sweep",
        "mlflow.source.type": "LOCAL",
        "mlflow.user": _user(),
        "mlflow.source.git.commit": "" if sha == "unknown" else sha,
    }
    return {key: value for key, value in tags.items() if value}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return ""


def cut(tags: Mapping[str, str]) -> dict[str, str]:
    """Tags shortened to what MLflow accepts."""
    return {name(key): value[:TAG_LIMIT] for key, value in tags.items()}


def params(result: Result) -> dict[str, str]:
    """The case's labels without its id, which is a tag."""
    labels = result.case.model_dump(exclude={"id"})
    return {key: str(value)[:PARAM_LIMIT] for key, value in labels.items()}


def labels(result: Result) -> dict[str, str]:
    """Tags of every run of a case: the UI's filter looks at each run alone."""
    case = result.case.model_dump()
    return {
        **(result.facts.environment | comparable.tags(result.facts) if result.facts else {}),
        **{label: str(case[label]) for label in LABELS},
        "fault": result.case.fault or "none",
        "case_id": result.case.id,
    }


def verdict_tags(result: Result) -> dict[str, str]:
    """The verdict and each check's outcome; an interrupted case has no verdict."""
    tags = {NOTE: note(result)}
    if result.interrupted:
        return tags
    tags["verdict"] = result.judgement.verdict.value
    for finding in result.judgement.findings:
        tags[CHECK + finding.check] = finding.outcome.value
    if result.judgement.verdict is Verdict.UNAVAILABLE:
        tags["unavailable"] = result.judgement.findings[0].message
    return tags


def case_metrics(result: Result) -> dict[str, float]:
    """The case's durations, and what the checks measured."""
    facts = result.facts
    metrics = {"time/total_seconds": facts.seconds} if facts else {}
    if facts and facts.launches and facts.launches[0].first_step_seconds is not None:
        metrics["time/to_first_step_seconds"] = facts.launches[0].first_step_seconds
    if facts and facts.compile_seconds is not None:
        metrics["time/compile_seconds"] = facts.compile_seconds
    if facts and facts.compile_cache is not None and any(facts.compile_cache):
        metrics["compile/cache_hits"], metrics["compile/cache_misses"] = facts.compile_cache
    for finding in [] if result.interrupted else result.judgement.findings:
        metrics.update(finding.metrics)
        if finding.margin is not None:
            metrics[MARGIN + finding.check] = finding.margin
    return {name(key): float(value) for key, value in metrics.items()}


def step_metrics(steps: Sequence[Step], started: int) -> list[Any]:
    """Curves, as MLflow's Metric; `started` in milliseconds is the sweep's.

    The same timestamp for the same step of every case: the UI overlays curves by time.
    """
    from mlflow.entities import Metric

    names = {**{f"train/{key}": key for key in STEP_METRICS}, **CURVES}
    return [
        Metric(name, float(value), started + 1000 * step.step, step.step)
        for step in steps
        for name, key in names.items()
        if (value := getattr(step, key)) is not None
    ]


def status(result: Result) -> str:
    """The final state of a case's run."""
    if result.interrupted or result.judgement.verdict is Verdict.UNAVAILABLE:
        return "KILLED"
    return "FINISHED" if result.judgement.verdict.ran_well else "FAILED"


def launch_status(launch: LaunchFacts, result: Result) -> str:
    """The final state of a launch's run."""
    if result.interrupted:
        return "KILLED"
    return "FINISHED" if launch.ended_well else "FAILED"


def note(result: Result) -> str:
    """Why it failed and the command to run it again, as Markdown."""
    if result.interrupted:
        return f"Interrupted: there is no result. Run it:\n\n    {result.command}\n"
    if result.message:
        return failure_note(result)
    return f"{result.judgement.verdict.value}. Run it again:\n\n    {result.command}\n"
