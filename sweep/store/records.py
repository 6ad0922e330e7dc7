"""What a run of MLflow says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweep.facts import Facts
from sweep.files import is_inside


@dataclass(frozen=True)
class SweepRecord:
    """The run of a sweep; its cases are tied to it by the tag `sweep_id`."""

    sweep_id: str
    run_id: str
    experiment_id: str
    experiment: str
    started: float  # seconds since the epoch
    status: str
    tags: dict[str, str]
    artifacts: str = ""  # address of its files


@dataclass(frozen=True)
class CaseRecord:
    """The latest run of a case; `facts` is None for a case that could not run there."""

    run_id: str
    started: float
    status: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, float]
    facts: Facts | None
    damaged: str = ""  # why the facts that are recorded cannot be read

    @property
    def case_id(self) -> str:
        """The case's id."""
        return self.tags["case_id"]


def sweep_record(run: Any, experiments: dict[str, str]) -> SweepRecord:
    return SweepRecord(
        sweep_id=run.data.tags["sweep_id"],
        run_id=run.info.run_id,
        experiment_id=str(run.info.experiment_id),
        experiment=experiments[str(run.info.experiment_id)],
        started=run.info.start_time / 1000,
        status=run.info.status,
        tags=dict(run.data.tags),
        artifacts=run.info.artifact_uri,
    )


def case_record(run: Any, facts: Facts | None, damaged: str = "") -> CaseRecord:
    return CaseRecord(
        run_id=run.info.run_id,
        started=run.info.start_time / 1000,
        status=run.info.status,
        tags=dict(run.data.tags),
        params=dict(run.data.params),
        metrics=dict(run.data.metrics),
        facts=facts,
        damaged=damaged,
    )


def foreign(run: Any, tags: Sequence[str]) -> str:
    """Why it is not a run that a sweep recorded; empty if it is one.

    Whoever shares the store can write any tag: an id that is no name would be a path of theirs.
    """
    for tag in tags:
        value = run.data.tags.get(tag)
        if value is None:
            return f"it has no tag {tag}"
        if tag.endswith("_id") and not is_inside(Path(), value):
            return f"its tag {tag} is no name: {value[:80]!r}"
    return ""


def ran(run: Any) -> bool:
    """Whether the case could run, and left facts."""
    return bool(run.data.tags.get("verdict") != "unavailable")
