"""Updates the verdicts of runs that are in MLflow already; writes only what changed."""

from __future__ import annotations

import math
import sys
import time
from typing import TYPE_CHECKING

from sweep.judge import findings
from sweep.report import Result
from sweep.store import entries
from sweep.store.records import CaseRecord

if TYPE_CHECKING:
    from mlflow import MlflowClient


def update(client: MlflowClient, record: CaseRecord, result: Result) -> bool:
    """Update tags, metrics, note and status of a case's run; returns whether any changed."""
    from mlflow.entities import Metric, RunTag

    tags = entries.cut(entries.verdict_tags(result))
    now = int(time.time() * 1000)  # of two values with one timestamp MLflow shows the larger
    new_tags = [RunTag(key, value) for key, value in tags.items() if record.tags.get(key) != value]
    new_metrics = [
        Metric(key, value, now, 0)
        for key, value in entries.case_metrics(result).items()
        if not _same(record.metrics.get(key), value)
    ]
    gone = [key for key in record.tags if key.startswith(entries.CHECK) and key not in tags]
    if new_tags or new_metrics:
        client.log_batch(record.run_id, new_metrics, tags=new_tags)
    for key in gone:
        client.delete_tag(record.run_id, key)
    if record.status != entries.status(result):
        client.update_run(record.run_id, status=entries.status(result))
    if new_tags or gone:
        client.log_text(record.run_id, findings.text(result.judgement), findings.NAME)
    return bool(new_tags or new_metrics or gone)


def _same(stored: float | None, value: float) -> bool:
    """Whether MLflow has this value; it stores infinity as the largest float."""
    if stored is None:
        return False
    largest = sys.float_info.max
    kept = max(-largest, min(largest, value))
    return stored == kept or (math.isnan(stored) and math.isnan(value))
