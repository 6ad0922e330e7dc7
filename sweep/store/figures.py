"""What a sweep's own run has in MLflow: figures to chart over nights, and its summary."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sweep.case.labels import Case
from sweep.judge import Verdict
from sweep.report import Result
from sweep.store import entries, nights

if TYPE_CHECKING:
    from mlflow import MlflowClient


def figures(results: Sequence[Result], missing: Sequence[Case], started: float) -> dict[str, float]:
    """Cases by verdict (0 where none has it), seconds, launches, and the worst margin by check."""
    verdicts = [result.judgement.verdict for result in results]
    counts = {f"cases/{verdict.value}": verdicts.count(verdict) for verdict in Verdict}
    ran = [result.facts for result in results if result.facts]
    ended = max((facts.started + facts.seconds for facts in ran), default=started)
    sums = {
        "cases/not_run": len(missing),
        "launches/total": sum(len(facts.launches) for facts in ran),
        "time/total_seconds": max(0.0, ended - started),
        "time/cases_seconds": sum(facts.seconds for facts in ran),
    }
    values = {key: float(value) for key, value in {**counts, **sums}.items()}
    return values | _worst_margins(results)


def _worst_margins(results: Sequence[Result]) -> dict[str, float]:
    worst: dict[str, float] = {}
    for result in results:
        for key, value in entries.case_metrics(result).items():
            if key.startswith(entries.MARGIN):
                worst[key] = max(value, worst.get(key, value))
    return worst


def summary(
    results: Sequence[Result], missing: Sequence[Case], environment: Mapping[str, str]
) -> dict[str, str]:
    """The tags that keep what `python -m sweep.history` reads of a sweep."""
    cases = [case_night(result, environment) for result in results if not result.interrupted]
    return nights.packed(cases, [case.id for case in missing])


def case_night(result: Result, environment: Mapping[str, str]) -> nights.CaseNight:
    """A case's part of it, as of the run that it has; `environment` is the sweep's."""
    tags = {**environment, **entries.labels(result), **entries.verdict_tags(result)}
    return nights.case_night(entries.cut(tags), entries.case_metrics(result))


def write(
    client: MlflowClient, run_id: str, values: Mapping[str, float], tags: Mapping[str, str]
) -> None:
    """Put figures and tags on the run, as far as it does not have them already."""
    from mlflow.entities import Metric, RunTag

    known = client.get_run(run_id).data
    now = int(time.time() * 1000)  # of two values with one timestamp MLflow shows the larger
    metrics = [
        Metric(key, value, now, 0)
        for key, value in values.items()
        if known.metrics.get(key) != value
    ]
    new = [RunTag(key, value) for key, value in tags.items() if known.tags.get(key) != value]
    if metrics or new:
        client.log_batch(run_id, metrics, tags=new)
