"""MLflow runs -> facts. Always by tag and never all runs: 5,000 of them take MLflow 20 seconds."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from sweep import facts as facts_file
from sweep import provenance
from sweep.case.folder import PLAN
from sweep.checks import comparable
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.store.location import Location
from sweep.store.records import (
    CaseRecord,
    SweepRecord,
    case_record,
    foreign,
    ran,
    sweep_record,
)

FACTS = "facts.json"
LATEST = "latest"
BASELINE, PINNED = "baseline", "pinned"  # a tag of a sweep's run, and its value
DOWNLOADS = 8  # at once
PAGE = 1000
NIGHTS = 3  # in one query; of a case that did not pass in them the runs are looked for apart
LOOK_BACK = 50
Item = TypeVar("Item")
Found = TypeVar("Found")


class Reader:
    """Reads sweeps from a store; raises MachineryError where the store does not answer."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._noted: set[str] = set()

    @classmethod
    def at(cls, outputs: Path) -> Reader:
        """The same store that a sweep into `outputs` records in; raises RequestError."""
        return cls(Location.at(outputs))

    def find(self, sweep_id: str, experiment: str | None = None) -> SweepRecord:
        """A sweep by id, or the `latest`; raises RequestError with the choices."""
        experiments = self._experiments(experiment)
        query = "tags.kind = 'sweep'"
        if sweep_id != LATEST:
            query += f" and tags.sweep_id = '{_safe(sweep_id)}'"
        sweeps = self._sweeps(list(experiments), query, limit=LOOK_BACK)
        if not sweeps:
            raise RequestError(self._no_sweep(sweep_id, experiments))
        return sweep_record(sweeps[0], experiments)

    def cases(self, sweep: SweepRecord) -> list[CaseRecord]:
        """The latest run of each case of the sweep, in the order in which they began.

        One whose recording was cut off before its facts were there is no result, and left out.
        """
        runs = self.case_runs(sweep)
        read = zip(runs, _in_parallel(self._facts_or_why, runs), strict=True)
        return [
            case_record(run, facts, why)
            for run, (facts, why) in read
            if facts is not None or why or _could_not_run(run)
        ]

    def case_runs(self, sweep: SweepRecord) -> list[Any]:
        """MLflow's run of each case, the latest where it ran again, in the order of their start."""
        latest: dict[str, Any] = {}
        for run in self._cases_of(sweep):  # the newest first
            latest.setdefault(run.data.tags["case_id"], run)
        return sorted(latest.values(), key=lambda run: (run.info.start_time, run.info.run_id))

    def every_run(self, sweep: SweepRecord) -> list[Any]:
        """The runs of all the sweep's cases, those that ran again included."""
        return self._cases_of(sweep)

    def sweeps_of(
        self, experiment_id: str, name: str, before: float | None = None, limit: int | None = PAGE
    ) -> list[SweepRecord]:
        """The sweeps of an experiment that began before that time (seconds), the newest first."""
        query = "tags.kind = 'sweep'"
        if before is not None:
            query += f" and attributes.start_time < {round(before * 1000)}"
        runs = self._sweeps([experiment_id], query, limit)
        return [sweep_record(run, {experiment_id: name}) for run in runs]

    def plan(self, sweep: SweepRecord) -> dict[str, Any]:
        """sweep.json: what was asked for, and the cases in their order."""
        with self.location.answering(f"read {PLAN} of sweep {sweep.sweep_id}"):
            plan: dict[str, Any] = json.loads(self._text(sweep.artifacts, PLAN))
            return plan

    def last_good(self, sweep: SweepRecord) -> dict[str, Facts]:
        """Case id -> facts of the newest earlier run of the same case and settings that passed.

        Without one, of the newest with other settings, so that a check can say how they differ.
        """
        cases = {run.data.tags["case_id"]: run for run in self._cases_of(sweep) if ran(run)}
        lately = self._passed_before(sweep, [], NIGHTS * len(cases))
        latest = {
            run.data.tags["case_id"]: run
            for run in reversed(lately)
            if (case := cases.get(run.data.tags["case_id"])) and _fits(run, case)
        }
        rest = [case for case_id, case in cases.items() if case_id not in latest]
        for run in _in_parallel(lambda case: self._good_before(sweep, case), rest):
            if run is not None:
                latest[run.data.tags["case_id"]] = run
        return self._by_case(latest.values())

    def at_commit(self, sha: str, like: Iterable[CaseRecord]) -> list[CaseRecord]:
        """The newest run of each of these cases that is like it in all but the trainer's code.

        Of code as that commit has it: one that ran with changes besides is none.
        """
        cases = {case.case_id: case for case in like}
        query = f"tags.kind = 'case' and tags.git_sha = '{_safe(sha)}'"
        runs = self._ours(self._search(list(self._experiments(None)), query), ("case_id",))
        found: dict[str, Any] = {}
        for run in runs:
            case = cases.get(run.data.tags["case_id"])
            if case is not None and "verdict" in run.data.tags and _is_like(run, case):
                found.setdefault(case.case_id, run)
        both = zip(found.values(), self._facts(list(found.values())), strict=True)
        return [case_record(run, facts) for run, facts in both if facts]

    def pinned(self, sweep: SweepRecord) -> dict[str, Facts]:
        """Case id -> facts of the sweeps that are pinned as the baseline in that experiment."""
        facts: dict[str, Facts] = {}
        for pinned in reversed(self.pinned_sweeps(sweep.experiment)):  # the newest goes before
            if pinned.sweep_id != sweep.sweep_id:
                facts |= {case.case_id: case.facts for case in self.cases(pinned) if case.facts}
        return facts

    def pinned_sweeps(self, experiment: str | None = None) -> list[SweepRecord]:
        """The sweeps that are pinned as baselines, the newest first; raises RequestError."""
        experiments = self._experiments(experiment)
        query = f"tags.kind = 'sweep' and tags.{BASELINE} = '{PINNED}'"
        return [sweep_record(run, experiments) for run in self._sweeps(list(experiments), query)]

    def before(self, sweep: SweepRecord) -> SweepRecord | None:
        """The sweep of the same experiment that began last before it and has a case of it.

        One shard of a night follows the other, and they have none in common.
        """
        query = f"tags.kind = 'sweep' and attributes.start_time < {int(sweep.started * 1000)}"
        runs = self._sweeps([sweep.experiment_id], query, LOOK_BACK)
        sweeps = (sweep_record(run, {sweep.experiment_id: sweep.experiment}) for run in runs)
        return next(self.like(sweep, sweeps), None)

    def like(self, sweep: SweepRecord, others: Iterable[SweepRecord]) -> Iterator[SweepRecord]:
        """Those of the others that have a case of the sweep."""
        cases = self._case_ids(sweep)
        return (other for other in others if cases & self._case_ids(other))

    def _case_ids(self, sweep: SweepRecord) -> set[str]:
        return {run.data.tags["case_id"] for run in self._cases_of(sweep)}

    def _cases_of(self, sweep: SweepRecord) -> list[Any]:
        """The runs of the sweep's cases, the newest first."""
        query = f"tags.kind = 'case' and tags.sweep_id = '{_safe(sweep.sweep_id)}'"
        runs = self._search([sweep.experiment_id], query)
        return self._ours(runs, ("case_id",))

    def _sweeps(self, experiments: list[str], query: str, limit: int | None = None) -> list[Any]:
        return self._ours(self._search(experiments, query, limit), ("sweep_id",))

    def _ours(self, runs: Sequence[Any], tags: Sequence[str]) -> list[Any]:
        """The runs that a sweep recorded: any other is left out, with a note."""
        ours = []
        for run in runs:
            if wrong := foreign(run, tags):
                self._note(f"run {run.info.run_id} in {self.location.shown} is left out: {wrong}")
            else:
                ours.append(run)
        return ours

    def _note(self, text: str) -> None:
        """On the terminal, once."""
        if text not in self._noted:
            self._noted.add(text)
            print(text, file=sys.stderr)

    def _good_before(self, sweep: SweepRecord, case: Any) -> Any | None:
        same = [f"tags.case_id = '{_safe(case.data.tags['case_id'])}'"]
        runs = self._passed_before(sweep, same, LOOK_BACK)
        return next((run for run in runs if _fits(run, case)), runs[0] if runs else None)

    def _passed_before(self, sweep: SweepRecord, more: Sequence[str], limit: int) -> list[Any]:
        """The newest first. Few conditions: each is a join, and eight of them take a second."""
        before = f"attributes.start_time < {int(sweep.started * 1000)}"
        query = " and ".join(["tags.verdict = 'passed'", before, *more])
        runs = self._search([sweep.experiment_id], query, limit) if limit else []
        return self._ours(runs, ("case_id",))

    def _by_case(self, runs: Iterable[Any]) -> dict[str, Facts]:
        runs = list(runs)
        return {
            run.data.tags["case_id"]: facts
            for run, facts in zip(runs, self._facts(runs), strict=True)
            if facts
        }

    def _facts(self, runs: Sequence[Any]) -> list[Facts | None]:
        return [facts for facts, _ in _in_parallel(self._facts_or_why, runs)]

    def _facts_or_why(self, run: Any) -> tuple[Facts | None, str]:
        """The facts of a run, or why those that are there cannot be read."""
        if not ran(run):
            return None, ""
        what = f"read {FACTS} of {run.data.tags['case_id']}, run {run.info.run_id}"
        with self.location.answering(what):
            try:
                return facts_file.parse(self._text(run.info.artifact_uri, FACTS), what), ""
            except facts_file.TooNewError:
                raise
            except (RequestError, UnicodeDecodeError) as error:
                return None, f"{FACTS} of run {run.info.run_id} cannot be read: {error}"
            except Exception:
                if self._has(run.info.artifact_uri, FACTS):
                    raise
                return None, ""

    def _has(self, artifact_uri: str, name: str) -> bool:
        from mlflow.artifacts import list_artifacts

        files = list_artifacts(artifact_uri=artifact_uri, tracking_uri=self.location.uri)
        # A local store lists it below its folder's name.
        return name in {Path(file.path).name for file in files}

    def _text(self, artifact_uri: str, name: str) -> str:
        """A run's artifact; a local store's file is read where it lies."""
        from mlflow.artifacts import download_artifacts

        uri = f"{artifact_uri.rstrip('/')}/{name}"
        if artifact_uri.startswith(("file:", "/")):
            path = download_artifacts(artifact_uri=uri, tracking_uri=self.location.uri)
            return Path(path).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            path = download_artifacts(
                artifact_uri=uri, dst_path=folder, tracking_uri=self.location.uri
            )
            return Path(path).read_text(encoding="utf-8")

    def _experiments(self, name: str | None) -> dict[str, str]:
        """Id -> name of that experiment, or of all."""
        if not self.location.exists:
            raise RequestError(
                f"nothing is recorded yet in {self.location.shown}; outputs=... or"
                " MLFLOW_TRACKING_URI says where else, python -m sweep records a sweep"
            )
        with self.location.answering("list its experiments"):
            experiments = self.location.client.search_experiments()
        names = {str(run.experiment_id): str(run.name) for run in experiments}
        if name is None:
            return names
        if name not in names.values():
            known = ", ".join(sorted(names.values()))
            raise RequestError(f"no experiment {name} in {self.location.shown}; there are: {known}")
        return {key: value for key, value in names.items() if value == name}

    def _search(self, experiments: list[str], query: str, limit: int | None = None) -> list[Any]:
        """Runs that match, the newest first."""
        runs: list[Any] = []
        token: str | None = None
        with self.location.answering("search runs"):
            while True:
                page = self.location.client.search_runs(
                    experiments, query, max_results=min(limit or PAGE, PAGE), page_token=token,
                    order_by=["attributes.start_time DESC"],
                )  # fmt: skip
                runs += page
                token = page.token
                if not token or (limit and len(runs) >= limit):
                    return runs[:limit]

    def _no_sweep(self, sweep_id: str, experiments: dict[str, str]) -> str:
        last = self._sweeps(list(experiments), "tags.kind = 'sweep'", limit=5)
        choices = ", ".join(run.data.tags["sweep_id"] for run in last) or "there is none yet"
        return f"no sweep {sweep_id} in {self.location.shown}; the last ones: {choices}"


def _could_not_run(run: Any) -> bool:
    """With the labels that the case is shown by, which no other run has."""
    return not ran(run) and "arch" in run.data.params


def _fits(run: Any, case: Any) -> bool:
    return comparable.fits(run.data.tags, case.data.tags)


def _is_like(run: Any, case: CaseRecord) -> bool:
    free = (*provenance.OF_TRAINER, *provenance.RULES)  # verdicts are made again
    before, now = (
        {key: value for key, value in tags.items() if key not in free}
        for tags in (run.data.tags, case.tags)
    )
    is_clean = run.data.tags.get("git_dirty") == "false"
    is_same = comparable.fits(run.data.tags, case.tags)
    return is_clean and is_same and not provenance.moved(before, now)


def _in_parallel(call: Callable[[Item], Found], items: Sequence[Item]) -> list[Found]:
    with ThreadPoolExecutor(DOWNLOADS, thread_name_prefix="mlflow-read") as pool:
        return list(pool.map(call, items))


def _safe(value: str) -> str:
    """A value for a query, in which MLflow can escape nothing."""
    if "'" in value:
        raise RequestError(f"{value}: a quote is in no name that a sweep gives")
    return value
