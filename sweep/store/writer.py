"""Results -> MLflow runs, by one process a sweep; a store that fails never costs a result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.files import write_json, write_text
from sweep.folder import is_dead, this_driver
from sweep.judge import Verdict
from sweep.report import Result, failure_note, summary
from sweep.report.runs import RECORDED, Run
from sweep.store.location import Location

if TYPE_CHECKING:
    from mlflow import MlflowClient

STEP_METRICS = ("loss", "grad_norm", "lr", "tokens", "step_seconds", "peak_memory_gib")
LABELS = ("arch", "layout", "feature", "trainer", "scale", "device")
TAG_LIMIT = 7900  # MLflow refuses 8000 characters
METRIC_BATCH = 900
ARTIFACTS = ("case.json", "facts.json", "findings.json", "launches/*/config.json",
             "launches/*/metrics.jsonl", "launches/*/launcher.log")  # fmt: skip


class Writer:
    """Records the cases of one sweep, in a thread, so that a slow store holds nothing up.

    Nothing here raises once the sweep has begun; `problem` says what went wrong.
    """

    def __init__(self, location: Location, experiment: str) -> None:
        self.problem: str | None = None
        self._location, self._experiment_name = location, experiment
        self._sweep_id = ""
        self._about: dict[str, str] = {}
        self._started = 0
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mlflow")

    @classmethod
    def at(cls, outputs: Path, experiment: str) -> Writer:
        """Into the store of that output folder; raises RequestError."""
        return cls(Location.at(outputs), experiment)

    def begin(self, sweep_id: str, about: dict[str, str], started: float | None = None) -> None:
        """Remember what every run of this sweep says; nothing is written yet."""
        self._sweep_id, self._about = sweep_id, about
        self._started = int(1000 * (time.time() if started is None else started))

    def record(self, result: Result) -> None:
        """Write a case's run, in the state in which it ended, when its turn comes; once."""
        self._writer.submit(self._guarded, lambda: self._record(result))

    def finish(
        self, results: Sequence[Result], interrupted: bool, unfinished: bool = False
    ) -> None:
        """Wait for the writing to end, and end the sweep's own run with the summary as its note.

        `unfinished`: cases still run, and are recorded another time.
        """
        if any(result.facts is not None for result in results):
            self._writer.submit(
                self._guarded, lambda: self._finish(results, interrupted, unfinished)
            )
        self._writer.shutdown()

    def _guarded(self, write: Callable[[], None]) -> None:
        try:
            write()
        except Exception as error:  # noqa: BLE001  # MLflow raises what its backends raise
            reason = " ".join(str(error).split())[:300]
            self.problem = f"results are on disk but not in MLflow ({self._location.uri}): {reason}"

    @property
    def _client(self) -> MlflowClient:
        return self._location.client

    @cached_property
    def _experiment(self) -> str:
        found = self._client.get_experiment_by_name(self._experiment_name)
        if found is not None:
            return str(found.experiment_id)
        return str(self._client.create_experiment(self._experiment_name, self._location.artifacts))

    @cached_property
    def _parent(self) -> str:
        """The sweep's own run; made with the first result, and taken up by a sweep that goes on."""
        self._end_dead_runs()
        query = f"tags.kind = 'sweep' and tags.sweep_id = '{self._sweep_id}'"
        for known in self._client.search_runs([self._experiment], query, max_results=1):
            self._client.update_run(known.info.run_id, status="RUNNING")
            self._client.set_tag(known.info.run_id, "driver", this_driver())
            return str(known.info.run_id)
        run = self._client.create_run(
            self._experiment,
            start_time=self._started,
            run_name=f"{self._night} {self._experiment_name}",
            tags={
                **self._about,
                "kind": "sweep",
                "sweep_id": self._sweep_id,
                "driver": this_driver(),
            },
        )
        return str(run.info.run_id)

    def _end_dead_runs(self) -> None:
        """Runs that a killed sweep left RUNNING are KILLED; nobody else will say so."""
        left = self._client.search_runs(
            [self._experiment], "attributes.status = 'RUNNING' and tags.driver LIKE '%:%'"
        )
        for run in left:
            if is_dead(run.data.tags["driver"]):
                self._client.set_terminated(run.info.run_id, "KILLED")

    @property
    def _night(self) -> str:
        return f"{self._sweep_id[4:6]}-{self._sweep_id[6:8]}"

    def _record(self, result: Result) -> None:
        facts = result.facts
        assert facts is not None, "only a case that ran is recorded"
        if (result.folder / RECORDED).is_file():
            return
        _ = self._parent
        run_id = self._client.create_run(
            self._experiment,
            start_time=int(facts.started * 1000),
            run_name=f"{self._night} {result.case.id}",
            tags=self._tags(result),
        ).info.run_id
        try:
            self._log(run_id, result)
        finally:
            ended = int((facts.started + facts.seconds) * 1000)
            self._client.set_terminated(run_id, _status(result), ended)
        run = Run(uri=self._location.uri, run_id=run_id, experiment_id=self._experiment)
        write_json(result.folder / RECORDED, run.model_dump())

    def _log(self, run_id: str, result: Result) -> None:
        from mlflow.entities import Param

        labels = result.case.model_dump()
        params = [Param(key, str(value)) for key, value in labels.items() if key != "id"]
        metrics = self._metrics(result)
        for first in range(0, max(1, len(metrics)), METRIC_BATCH):
            self._client.log_batch(run_id, metrics[first : first + METRIC_BATCH], params)
            params = []
        if result.message:
            write_text(result.folder / "failure.md", failure_note(result, limit=1_000_000))
        for pattern in (*ARTIFACTS, "failure.md"):
            for path in sorted(result.folder.glob(pattern)):
                inside = path.parent.relative_to(result.folder).as_posix()
                self._client.log_artifact(run_id, str(path), None if inside == "." else inside)

    def _metrics(self, result: Result) -> list[Any]:
        from mlflow.entities import Metric

        # The same timestamp for the same step of every case: the UI overlays curves by time.
        found = [
            Metric(f"train/{name}", float(value), self._started + 1000 * step.step, step.step)
            for step in (result.facts.steps if result.facts else [])
            for name in STEP_METRICS
            if (value := getattr(step, name)) is not None
        ]
        return found + [Metric(name, value, self._started, 0)
                        for name, value in _case_metrics(result).items()]  # fmt: skip

    def _tags(self, result: Result) -> dict[str, str]:
        case = result.case.model_dump()
        facts = result.facts
        tags = {
            **self._about,
            **(facts.environment if facts else {}),
            **{label: str(case[label]) for label in LABELS},
            "kind": "case",
            "driver": this_driver(),
            "sweep_id": self._sweep_id,
            "case_id": result.case.id,
            "verdict": result.judgement.verdict.value,
            **{f"check.{one.check}": one.outcome.value for one in result.judgement.findings},
            "mlflow.note.content": _note(result),
        }
        return {key: value[:TAG_LIMIT] for key, value in tags.items()}

    def _finish(self, results: Sequence[Result], interrupted: bool, unfinished: bool) -> None:
        text = summary(self._sweep_id, results)
        self._client.set_tag(self._parent, "mlflow.note.content", text[:TAG_LIMIT])
        if unfinished:
            self._client.update_run(self._parent, status="SCHEDULED")
            return
        good = all(result.judgement.verdict.good for result in results)
        status = "KILLED" if interrupted else "FINISHED" if good else "FAILED"
        self._client.set_terminated(self._parent, status)


def _case_metrics(result: Result) -> dict[str, float]:
    facts = result.facts
    metrics = {"time/total_seconds": facts.seconds} if facts else {}
    if facts and facts.launches and facts.launches[0].first_step_seconds is not None:
        metrics["time/to_first_step_seconds"] = facts.launches[0].first_step_seconds
    if facts and facts.compile_seconds is not None:
        metrics["time/compile_seconds"] = facts.compile_seconds
    for finding in result.judgement.findings:
        metrics.update(finding.metrics)
    return metrics


def _status(result: Result) -> str:
    if result.facts is not None and result.facts.interrupted:
        return "KILLED"
    return "FINISHED" if result.judgement.verdict in (Verdict.PASSED, Verdict.KNOWN) else "FAILED"


def _note(result: Result) -> str:
    if result.message:
        return failure_note(result)
    return f"{result.judgement.verdict.value}. Run it again:\n\n    {result.command}\n"
