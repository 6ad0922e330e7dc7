"""Sweeps as they lie on disk and in MLflow, of facts that a test makes up; and what reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sweep import facts as facts_file
from sweep import sync
from sweep.case.folder import this_driver
from sweep.checks import Context
from sweep.cli.arguments import run
from sweep.facts import Facts
from sweep.files import write_json
from sweep.judge import judge
from sweep.judge.__main__ import main
from sweep.report import Result
from sweep.store import End, Location, Writer

DEAD = "no-such-host:1:1.0"
SWEEP = "20260102-000000"
ABOUT = {"git_sha": "abc", "git_dirty": "false", "torch": "2.13.0"}


def sweep_folder(
    outputs: Path, *all_facts: Facts, sweep_id: str = SWEEP, experiment: str = "adhoc",
    began: float = 0.0, config_dir: str | None = None,
) -> list[Result]:  # fmt: skip
    """What a sweep leaves on disk; of a case given twice the second lies in a folder of its own."""
    folder, results = outputs / sweep_id, []
    cases = [facts.case.id for facts in all_facts]
    write_json(folder / "sweep.json", {
        "sweep_id": sweep_id, "experiment": experiment, "started": began, "environment": ABOUT,
        "driver": this_driver(), "cases": list(dict.fromkeys(cases)),
    })  # fmt: skip
    for number, facts in enumerate(all_facts):
        again = "" if facts.case.id not in cases[:number] else f"-again{number}"
        case_dir = folder / f"{facts.case.id}{again}"
        facts_file.save(facts, case_dir)
        known = {"case": facts.case.model_dump(), "overrides": ["a=b"], "config_dir": config_dir}
        write_json(case_dir / "case.json", known)
        results.append(Result(judge(facts, Context()), case_dir, "python -m sweep a=b", facts))
    return results


def record(outputs: Path, *all_facts: Facts, **sweep: Any) -> list[Result]:
    """Such a sweep, in MLflow."""
    results = sweep_folder(outputs, *all_facts, **sweep)
    writer = Writer(Location.at(outputs), outputs / sweep.get("sweep_id", SWEEP))
    for result in results:
        writer.record(result)
    writer.settle()
    writer.finish(results, End())
    return results


def night(outputs: Path, day: int, *all_facts: Facts, experiment: str = "nightly") -> str:
    """Record a sweep of that day; what its cases began at follows."""
    sweep_id = f"2026010{day}-000000"
    started = [
        facts.model_copy(update={"sweep_id": sweep_id, "started": day * 1e5 + number})
        for number, facts in enumerate(all_facts)
    ]
    record(outputs, *started, sweep_id=sweep_id, experiment=experiment, began=day * 1e5)
    return sweep_id


def named(facts: Facts, case_id: str, **changed: Any) -> Facts:
    case = facts.case.model_copy(update={"id": case_id})
    return facts.model_copy(update={"case": case, **changed})


def ended(folder: Path, driver: str = DEAD) -> None:
    plan = json.loads((folder / "sweep.json").read_text())
    write_json(folder / "sweep.json", {**plan, "driver": driver})


def synced(outputs: Path) -> int:
    return run(sync.USAGE, sync.main, [f"outputs={outputs}"])


def judge_again(outputs: Path, **arguments: str) -> int:
    given = [f"{key}={value}" for key, value in {"outputs": str(outputs), **arguments}.items()]
    return main(given)


def statuses(outputs: Path) -> list[tuple[str, str]]:
    """Kind and status of every run in the store."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{outputs}/mlflow.db")
    experiments = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(experiments)
    assert all(run.info.end_time for run in runs if run.info.status != "RUNNING")
    return sorted((run.data.tags["kind"], run.info.status) for run in runs)
