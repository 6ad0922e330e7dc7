"""How long judging a nightly takes with 5,000 runs in the store.

python benchmarks/judge_5000.py                  # a SQLite file
python benchmarks/judge_5000.py --server         # an MLflow server on loopback over such a file
python benchmarks/judge_5000.py --profile        # where the time goes

The cases are those of suite=nightly, with figures of the size that the built-in trainer leaves on
four ranks. One night is recorded as a sweep does it; the nights before are copies of its rows,
written into the database at once. Then the night after is recorded and judged: the first time
every verdict is written, the other times none has changed.
"""

from __future__ import annotations

import argparse
import cProfile
import itertools
import os
import pstats
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import yaml

from sweep.case.folder import this_driver
from sweep.case.labels import Case
from sweep.facts import Facts, LaunchFacts, Metrics, Step
from sweep.facts import save as save_facts
from sweep.files import ConfDirs, conf_dir, write_json
from sweep.plan import suite
from sweep.report import Result
from sweep.session.rejudge import judge_recorded
from sweep.session.results import load
from sweep.store import End, Location, Reader, Writer

RUNS = 5000
RANKS = 4
DAY = 86_400.0
START = 1_700_000_000.0
TABLES = ("tags", "params", "metrics", "latest_metrics")


def cases() -> list[Case]:
    """The cases of suite=nightly."""
    rows = yaml.safe_load((conf_dir() / "suite" / "nightly.yaml").read_text())["rows"]
    planned = []
    for texts in suite.combinations({}, rows):
        names = dict(text.split("=") for text in texts)
        planned.append(Case(
            id=f"{names['arch']}-{names['layout']}-{names['feature']}", **names, trainer="sft",
            scale="nano", device="cpu", dtype="float32", seed=0, steps=8, world_size=RANKS,
        ))  # fmt: skip
    return planned


def facts_of(case: Case, sweep_id: str, started: float) -> Facts:
    """A good case: eight steps with a digest and counters of each rank."""
    digests = [uuid.uuid5(uuid.NAMESPACE_OID, f"{case.arch}{rank}").hex for rank in range(RANKS)]
    counters = {f"counter_{number}": list(range(RANKS)) for number in range(12)}
    steps = [
        Step(
            step=n,
            loss=8 - n / 10,
            grad_norm=1.0,
            lr=1e-4,
            tokens=2048,
            step_seconds=0.5,
            peak_memory_gib=1.0,
            params_moved=1.0,
            batch_digests=digests,
            rng_digests=digests,
            global_batch_digest=f"{case.arch}{n}",
            counters=counters,
            grad_norm_groups=dict.fromkeys(["attention", "embedding", "head", "norm"], 0.5),
        )
        for n in range(1, 9)
    ]
    launch = LaunchFacts(
        name="train", directory="launches/1_train", argv=["torchrun"], first_step=1, last_step=8,
        exit_code=0, limit_seconds=900, started=started, seconds=30, first_step_seconds=9.0,
        metrics=Metrics(steps=steps),
    )  # fmt: skip
    return Facts(sweep_id=sweep_id, case=case, started=started, seconds=31.0, environment={},
                 launches=[launch])  # fmt: skip


def record(outputs: Path, night: int) -> None:
    """A sweep through our own writer."""
    began = START + night * DAY
    sweep_id = time.strftime("%Y%m%d-%H%M%S", time.gmtime(began))
    folder = outputs / sweep_id
    planned = cases()
    write_json(
        folder / "sweep.json",
        {
            "sweep_id": sweep_id,
            "experiment": "nightly",
            "started": began,
            "environment": {},
            "driver": this_driver(),
            "cases": [case.id for case in planned],
        },
    )
    writer = Writer(Location.at(outputs), folder, patience=1000)
    results = list(_results(planned, folder, began))
    for result in results:
        writer.record(result)
    writer.settle()
    writer.finish(results, End())


def _results(planned: list[Case], folder: Path, began: float) -> Iterator[Result]:
    for number, case in enumerate(planned):
        save_facts(facts_of(case, folder.name, began + 40 * number), folder / case.id)
        write_json(folder / case.id / "case.json", {"case": case.model_dump(), "overrides": []})
        result = load(folder / case.id, ConfDirs())
        assert result is not None
        yield result


def copy_nights(database: Path) -> int:
    """The rows of all runs again and again, a day earlier each; returns how many runs there are."""
    with sqlite3.connect(database) as store:
        columns = {
            table: [row[1] for row in store.execute(f"pragma table_info({table})")]
            for table in ("runs", *TABLES)
        }
        runs = store.execute("select * from runs").fetchall()
        rows = {table: store.execute(f"select * from {table}").fetchall() for table in TABLES}
        for night in itertools.count(1):
            if (night + 1) * len(runs) > RUNS:
                break
            names = {run[columns["runs"].index("run_uuid")]: uuid.uuid4().hex for run in runs}
            for table, copied in {"runs": runs, **rows}.items():
                changed = [
                    _earlier(dict(zip(columns[table], row, strict=True)), names, night)
                    for row in copied
                ]
                store.executemany(
                    f"insert into {table} ({','.join(columns[table])})"
                    f" values ({','.join('?' * len(columns[table]))})",
                    [tuple(row.values()) for row in changed],
                )
        total: int = store.execute("select count(*) from runs").fetchone()[0]
        store.execute("analyze")
    return total


def _earlier(row: dict[str, object], names: dict[object, str], night: int) -> dict[str, object]:
    row = {**row, "run_uuid": names[row["run_uuid"]]}
    for key in ("start_time", "end_time"):
        if key in row:
            row[key] = int(str(row[key])) - int(night * DAY * 1000)
    if row.get("key") == "sweep_id":
        row["value"] = f"{row['value']}-before{night}"
    return row


def judge(outputs: Path) -> float:
    """Seconds that judging the latest night takes, in this process."""
    began = time.perf_counter()
    reader = Reader.at(outputs)
    sweep = reader.find("latest")
    results = judge_recorded(reader, sweep, outputs / sweep.sweep_id, ConfDirs())
    assert len(results) == len(cases())
    return time.perf_counter() - began


def command(outputs: Path) -> float:
    """Seconds that `python -m sweep.judge` takes, importing MLflow and printing included."""
    began = time.perf_counter()
    arguments = ["sweep=latest", f"outputs={outputs}"]
    done = subprocess.run([sys.executable, "-m", "sweep.judge", *arguments], capture_output=True)
    assert done.returncode in (0, 1), done.stderr.decode()
    return time.perf_counter() - began


@contextmanager
def served(outputs: Path) -> Iterator[None]:
    """An MLflow server over the file."""
    from tests.sweep.servers import mlflow_server

    with mlflow_server(f"sqlite:///{outputs}/mlflow.db", outputs) as address:
        os.environ["MLFLOW_TRACKING_URI"] = address
        yield


def main() -> None:
    """Make the store, judge, print a row of the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    outputs = Path(tempfile.mkdtemp(prefix="judge-"))
    try:
        record(outputs, 0)
        total = copy_nights(outputs / "mlflow.db")
        with served(outputs) if options.server else nullcontext():
            record(outputs, 1)
            first = judge(outputs)
            if options.profile:
                profile = cProfile.Profile()
                profile.runcall(judge, outputs)
                pstats.Stats(profile).sort_stats("cumulative").print_stats(40)
            again = statistics.median(judge(outputs) for _ in range(options.repeats))
            whole = statistics.median(command(outputs) for _ in range(3))
    finally:
        shutil.rmtree(outputs)
    print("| store | runs | judged first | again (median) | the whole command (median) |")
    print("| --- | --- | --- | --- | --- |")
    store = "server over SQLite" if options.server else "SQLite file"
    print(f"| {store} | {total:,} | {first:.1f} s | {again:.1f} s | {whole:.1f} s |")


if __name__ == "__main__":
    main()
