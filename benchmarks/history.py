"""How long `python -m sweep.history` takes over a year of nights.

python benchmarks/history.py                # a SQLite file
python benchmarks/history.py --postgresql   # PostgreSQL
python benchmarks/history.py --server       # the same through an MLflow server on loopback

The cases are those of suite=nightly. One night is recorded as a sweep does it; the others are
copies of its rows (but not of the points of its curves, which no history reads), written into the
database at once: 365 runs of sweeps and 12,000 of cases. `read and shown` is from the first query
to the page, the table and the JSON, in a process that has imported MLflow; the whole command
imports it.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from rich.console import Console

from benchmarks.judge_5000 import cases, record
from sweep.history import html, text
from sweep.history.data import data
from sweep.history.view import View
from sweep.store import Location, Reader, past

NIGHTS = 365
DAY = 86_400_000  # milliseconds
TABLES = ("tags", "params", "latest_metrics")


def copy_nights(address: str) -> tuple[int, int]:
    """Copy the rows of the runs, a day earlier each; returns (runs of sweeps, runs of cases)."""
    engine = sqlalchemy.create_engine(address)
    known = sqlalchemy.MetaData()
    known.reflect(engine, only=["runs", *TABLES])
    with engine.begin() as store:
        rows = {
            name: [dict(row) for row in store.execute(known.tables[name].select()).mappings()]
            for name in ("runs", *TABLES)
        }
        for night in range(1, NIGHTS):
            ids = {row["run_uuid"]: uuid.uuid4().hex for row in rows["runs"]}
            for name, copied in rows.items():
                changed = [_earlier(row, ids, night) for row in copied]
                store.execute(known.tables[name].insert(), changed)
    with engine.connect() as store:
        kinds = {
            kind: store.execute(
                sqlalchemy.text("select count(*) from tags where key = 'kind' and value = :kind"),
                {"kind": kind},
            ).scalar_one()
            for kind in ("sweep", "case")
        }
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as store:
        store.execute(sqlalchemy.text("analyze"))
    return kinds["sweep"], kinds["case"]


def _earlier(row: dict[str, Any], ids: dict[str, str], night: int) -> dict[str, Any]:
    row = {**row, "run_uuid": ids[row["run_uuid"]]}
    for key in ("start_time", "end_time"):
        if row.get(key):
            row[key] -= night * DAY
    if row.get("key") == "sweep_id":
        row["value"] = f"{row['value']}-before{night}"
    return row


def show(outputs: Path) -> tuple[float, float]:
    """(seconds, seconds of CPU in this process), from the first query to the page and the JSON."""
    began, worked = time.perf_counter(), time.process_time()
    reader = Reader.at(outputs)
    view = View.of(past.sweeps(reader, reader.find("latest", "nightly"), NIGHTS))
    html.page(view)
    text.show(view, Console(file=io.StringIO(), width=120))
    data(view)
    assert len(view.nights) == NIGHTS
    assert len(view.cases) == len(cases())
    return time.perf_counter() - began, time.process_time() - worked


def command(outputs: Path) -> float:
    """Seconds that `python -m sweep.history` takes."""
    began = time.perf_counter()
    words = ["suite=nightly", f"last={NIGHTS}", f"outputs={outputs}"]
    done = subprocess.run([sys.executable, "-m", "sweep.history", *words], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return time.perf_counter() - began


@contextmanager
def database(outputs: Path, is_postgresql: bool) -> Iterator[str]:
    """The address of an empty database."""
    from tests.sweep.servers import postgresql

    if not is_postgresql:
        yield f"sqlite:///{outputs}/mlflow.db"
        return
    with postgresql() as address:
        yield address


def main() -> None:
    """Make the store, read it, print a row of the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgresql", action="store_true")
    parser.add_argument("--server", action="store_true")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    outputs = Path(tempfile.mkdtemp(prefix="history-"))
    try:
        with ExitStack() as stack:
            address = stack.enter_context(database(outputs, options.postgresql))
            os.environ["MLFLOW_TRACKING_URI"] = address
            record(outputs, 0)
            sweeps, of_cases = copy_nights(address)
            if options.server:
                from tests.sweep.servers import mlflow_server

                served = mlflow_server(address, outputs)
                os.environ["MLFLOW_TRACKING_URI"] = stack.enter_context(served)
            _ = Location.at(outputs).client
            times = [show(outputs) for _ in range(options.repeats)]
            seconds, worked = map(statistics.median, zip(*times, strict=True))
            whole = statistics.median(command(outputs) for _ in range(3))
    finally:
        shutil.rmtree(outputs)
    store = "PostgreSQL" if options.postgresql else "SQLite file"
    print("| store | sweeps | cases | read and shown | CPU of it | the whole command |")
    print("| --- | --- | --- | --- | --- | --- |")
    kind = f"server over {store}" if options.server else store
    print(
        f"| {kind} | {sweeps} | {of_cases:,} | {seconds:.2f} s | {worked:.2f} s | {whole:.1f} s |"
    )


if __name__ == "__main__":
    main()
