"""Writes a sweep into MLflow. Every call can be repeated without effect.

Before a run is created it is searched by its sweep, case and start, so that one that was written
halfway, or whose answer was lost, is continued and not doubled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep import commands
from sweep.case import folder as sweep_folder
from sweep.case.folder import PLAN, this_driver
from sweep.errors import MachineryError
from sweep.files import write_json, write_text
from sweep.report import PLOT, Result, failure_note
from sweep.report.runs import RECORDED, Run, run_of
from sweep.store import entries
from sweep.store.ending import End, end_dead_runs, finish, log_files, milliseconds, times
from sweep.store.location import Location
from sweep.store.records import ran

if TYPE_CHECKING:
    from mlflow import MlflowClient

METRIC_BATCH = 900
CASE_FILES = ("case.json", "facts.json", "findings.json", "failure.md", "error.log",
              "launches/*/config.*", "launches/*/metrics.jsonl",
              "launches/*/launcher.log")  # fmt: skip
SUPERSEDED = "superseded"  # tag of an older run: the id of the latest run of the case


@dataclass
class Recorder:
    """One sweep, from its folder; raises what MLflow raises."""

    location: Location
    folder: Path

    @property
    def sweep_id(self) -> str:
        """The folder's name."""
        return self.folder.name

    @cached_property
    def _plan(self) -> dict[str, Any]:
        return sweep_folder.read_plan(self.folder)

    @property
    def _client(self) -> MlflowClient:
        return self.location.client

    @property
    def _started(self) -> int:
        return milliseconds(float(self._plan["started"]))

    @cached_property
    def experiment_id(self) -> str:
        """The id of the suite's experiment, which is created if needed."""
        name = str(self._plan["experiment"])
        about = entries.of_experiment(name)
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self._client.create_experiment(name, self.location.artifacts, about))
            except Exception:
                experiment = self._client.get_experiment_by_name(name)  # another sweep was faster
                if experiment is None:
                    raise
        if experiment.lifecycle_stage == "deleted":
            raise MachineryError(
                f"the experiment {name} was deleted; MLFLOW_TRACKING_URI={self.location.shown}"
                f" mlflow experiments restore -x {experiment.experiment_id} brings it back"
            )
        for key, value in about.items():
            if key not in experiment.tags:  # made by an earlier version; what a person wrote stays
                self._client.set_experiment_tag(experiment.experiment_id, key, value)
        return str(experiment.experiment_id)

    @cached_property
    def parent(self) -> str:
        """The id of the sweep's own run, created with the first result, kept by a resumed sweep."""
        end_dead_runs(self._client, self.experiment_id)
        (self.folder / RECORDED).unlink(missing_ok=True)
        known = self._search(f"tags.kind = 'sweep' and tags.sweep_id = '{self.sweep_id}'")
        about = {**self._plan["environment"], "kind": "sweep", "folder": str(self.folder.resolve())}
        if self._command:
            about["command"] = self._command
        run_id = self._begin(known, self._started, self._what, about)
        self._client.log_artifact(run_id, str(self.folder / PLAN))
        return run_id

    @property
    def _command(self) -> str:
        """The sweep's command line; empty where its plan has none."""
        argv = [str(word) for word in self._plan.get("argv", [])]
        return commands.spelled("sweep", argv) if argv else ""

    @property
    def _what(self) -> str:
        """`nightly`, or `nightly 1/4` of a shard: two may begin in the same minute."""
        shards = (str(word) for word in self._plan.get("argv", []))
        shard = next((word for word in shards if word.startswith("shard=")), "shard=")
        return f"{self._plan['experiment']} {shard.removeprefix('shard=')}".strip()

    def record(self, result: Result, again: bool = False) -> None:
        """Write a case's run, once, with its final state; `again`: it has a launch more since."""
        if run_of(result.folder, self.location.shown) and not again:
            return
        _ = self.parent
        earlier = self._search(
            f"tags.kind = 'case' and tags.case_id = '{result.case.id}'"
            f" and tags.sweep_id = '{self.sweep_id}'"
        )
        started, ended = times(result, _after(earlier, self._started))
        same = [run for run in earlier if run.info.start_time == started]
        run_id = self._begin(same, started, result.case.id, self._case_tags(result))
        try:
            self._log(run_id, result)
        finally:
            self._client.set_terminated(run_id, entries.status(result), ended)
        self._record_launches(run_id, result)
        self._supersede(run_id, started, earlier)
        self._note(result.folder, run_id)

    def finish(self, results: Sequence[Result], end: End) -> None:
        """End the sweep's own run; adds its reports, and each case's plot, as artifacts."""
        for result in results:
            run = run_of(result.folder, self.location.shown)
            if run is not None:
                log_files(self._client, run.run_id, result.folder, (PLOT,))
        finish(self._client, self.parent, self.folder, results, end)
        self._note(self.folder, self.parent)

    def _note(self, folder: Path, run_id: str) -> None:
        run = Run(uri=self.location.shown, run_id=run_id, experiment_id=self.experiment_id)
        write_json(folder / RECORDED, run.model_dump())

    def _begin(self, known: Sequence[Any], started: int, what: str, tags: dict[str, str]) -> str:
        """The id of the known run, set to RUNNING again, or of a new one."""
        from mlflow.entities import RunTag

        origin = entries.origin(self._plan["environment"], self._command)
        ours = {"driver": this_driver(), "sweep_id": self.sweep_id}
        tags = entries.cut({**origin, **tags, **ours})
        if not known:
            run_name = entries.run_name(self.sweep_id, what)
            new = self._client.create_run(self.experiment_id, started, tags, run_name)
            return str(new.info.run_id)
        run_id = str(known[0].info.run_id)
        self._client.log_batch(run_id, tags=[RunTag(key, value) for key, value in tags.items()])
        # After the tags: a run with a dead sweep's `driver` would be ended.
        self._client.update_run(run_id, status="RUNNING")
        return run_id

    def _log(self, run_id: str, result: Result) -> None:
        from mlflow.entities import Metric

        metrics = entries.step_metrics(result.facts.steps if result.facts else [], self._started)
        metrics += [
            Metric(key, value, self._started, 0)
            for key, value in entries.case_metrics(result).items()
        ]
        self._log_metrics(run_id, metrics, _params(result))
        if result.message:
            write_text(result.folder / "failure.md", failure_note(result, limit=1_000_000))
        log_files(self._client, run_id, result.folder, CASE_FILES)

    def _log_metrics(self, run_id: str, metrics: list[Any], params: Sequence[Any] = ()) -> None:
        for first in range(0, max(1, len(metrics)), METRIC_BATCH):
            self._client.log_batch(
                run_id, metrics[first : first + METRIC_BATCH], [] if first else params
            )

    def _record_launches(self, case_run: str, result: Result) -> None:
        """A resumed launch is a run of its own, so that the UI can compare its curves."""
        for launch in result.facts.launches[1:] if result.facts else []:
            name = Path(launch.directory).name  # 2_resume
            tags = {**self._plan["environment"], **entries.labels(result), "kind": "launch",
                    "launch": name, "case_run": case_run}  # fmt: skip
            known = self._search(f"tags.case_run = '{case_run}' and tags.launch = '{name}'")
            started = milliseconds(launch.started)
            run_id = self._begin(known, started, f"{result.case.id} {name}", tags)
            try:
                curves = entries.step_metrics(launch.metrics.steps, self._started)
                self._log_metrics(run_id, curves, _params(result))
            finally:
                ended = milliseconds(launch.started + launch.seconds)
                self._client.set_terminated(run_id, entries.launch_status(launch, result), ended)

    def _supersede(self, run_id: str, started: int, earlier: Sequence[Any]) -> None:
        """Only a case's latest run counts; older runs get a tag that names it."""
        others = [run for run in earlier if run.info.run_id != run_id]
        latest = max(others, key=lambda run: int(run.info.start_time), default=None)
        if latest is not None and latest.info.start_time > started:
            self._client.set_tag(run_id, SUPERSEDED, latest.info.run_id)
            return
        for run in others:
            if run.data.tags.get(SUPERSEDED) != run_id:
                self._client.set_tag(run.info.run_id, SUPERSEDED, run_id)

    def _case_tags(self, result: Result) -> dict[str, str]:
        return {
            **self._plan["environment"],
            **entries.labels(result),
            **entries.verdict_tags(result),
            "kind": "case",
            "command": result.command,
            "folder": str(result.folder.resolve()),
        }

    def _search(self, query: str) -> list[Any]:
        return list(self._client.search_runs([self.experiment_id], query))


def _after(earlier: Sequence[Any], sweep_started: int) -> int:
    """When a case that could not run did so: after its earlier runs, of which the latest counts."""
    latest = max(earlier, key=lambda run: int(run.info.start_time), default=None)
    if latest is None:
        return sweep_started
    return int(latest.info.start_time) + int(ran(latest))  # its own run is found, and taken up


def _params(result: Result) -> list[Any]:
    from mlflow.entities import Param

    return [Param(key, value) for key, value in entries.params(result).items()]
