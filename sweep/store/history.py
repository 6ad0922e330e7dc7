"""What MLflow knows of earlier runs."""

from __future__ import annotations

from pathlib import Path

from sweep.store import Location

LIMIT = 300  # of the latest runs, nine nights: a thousand take MLflow four seconds


def durations(outputs: Path, device: str, before: float) -> dict[str, list[float]]:
    """Case id -> seconds of its passed runs on that device kind that began before `before`.

    Empty where nothing is recorded, or the store does not answer: estimates are no reason to stop.
    """
    store = Location.at(outputs)
    if not store.exists:
        return {}
    query = (
        f"tags.kind = 'case' and tags.verdict = 'passed' and tags.device = '{device}'"
        f" and attributes.start_time < {int(before * 1000)}"
    )
    found: dict[str, list[float]] = {}
    try:
        client = store.client
        experiments = [one.experiment_id for one in client.search_experiments()]
        runs = client.search_runs(
            experiments, query, max_results=LIMIT, order_by=["attributes.start_time DESC"]
        )
    except Exception:  # noqa: BLE001  # MLflow raises what its backends raise
        return {}
    for run in runs:
        seconds = run.data.metrics.get("time/total_seconds")
        if seconds is not None:
            found.setdefault(run.data.tags.get("case_id", ""), []).append(seconds)
    return found
