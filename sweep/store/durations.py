"""How long earlier runs took, from MLflow."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from sweep.store import Location

LIMIT = 300  # latest runs, about nine nights; reading a thousand takes four seconds
PAUSES = (5.0, 20.0)  # seconds before each further attempt; all shards need the same answer


def of_cases(
    outputs: Path, device: str, before: float, shards: bool = False
) -> dict[str, list[float]]:
    """Case id -> seconds of its passed runs on that device kind that began before `before`.

    Empty where nothing is recorded, or the store does not answer: estimates are no reason to stop.
    With `shards`, which must come to the same, what a runner's own file knows does not count.
    """
    store, is_named = Location.at(outputs), bool(os.environ.get("MLFLOW_TRACKING_URI"))
    if not store.exists or (shards and not is_named):
        return {}
    for pause in (*PAUSES, None) if shards else (None,):
        try:
            return _by_case(store, device, before)
        except Exception:  # noqa: BLE001  # MLflow raises what its backends raise
            time.sleep(pause or 0.0)
    if shards:
        print(
            f"{store.shown} does not answer: shards are split by conf/estimates.yaml, and not as"
            " by runners that it did answer",
            file=sys.stderr,
        )
    return {}


def _by_case(store: Location, device: str, before: float) -> dict[str, list[float]]:
    query = (
        f"tags.kind = 'case' and tags.verdict = 'passed' and tags.device = '{device}'"
        f" and attributes.start_time < {int(before * 1000)}"
    )
    client, durations = store.client, dict[str, list[float]]()
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    runs = client.search_runs(
        experiments, query, max_results=LIMIT, order_by=["attributes.start_time DESC"]
    )
    for run in runs:
        seconds = run.data.metrics.get("time/total_seconds")
        if seconds is not None:
            durations.setdefault(run.data.tags.get("case_id", ""), []).append(seconds)
    return durations
