"""Many processes that record at once: `writers.py OUTPUTS COUNT STEPS` with make_facts' figures.

One process imports MLflow and forks before it opens anything: importing it sixteen times would
take longer than all the writing.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing.synchronize import Barrier
from pathlib import Path

from sweep.facts import Facts, LaunchFacts, Metrics, Step
from sweep.store import End, Location, Writer
from tests.sweep.conftest import CASE
from tests.sweep.recording import sweep_folder


def sweep_id(number: int) -> str:
    return f"20260102-0000{number:02}"


def facts_of(number: int, steps: int) -> Facts:
    curve = [
        Step(
            step=n,
            loss=number + 1 / n,
            grad_norm=1.0 / n,
            lr=1e-4,
            tokens=n,
            step_seconds=0.5,
            params_moved=1.0,
        )
        for n in range(1, steps + 1)
    ]
    launch = LaunchFacts(
        name="train", directory="launches/1_train", argv=[], first_step=1, last_step=steps,
        exit_code=0, limit_seconds=1.0, started=1.0, seconds=1.0, metrics=Metrics(steps=curve),
    )  # fmt: skip
    return Facts(sweep_id=sweep_id(number), case=CASE, started=1000.0 + number, seconds=1.0,
                 environment={}, launches=[launch])  # fmt: skip


def write(outputs: Path, number: int, steps: int, start: Barrier) -> None:
    (result,) = sweep_folder(outputs, facts_of(number, steps), sweep_id=sweep_id(number),
                             began=1000.0 + number)  # fmt: skip
    start.wait()
    writer = Writer(Location.at(outputs), outputs / sweep_id(number), patience=300)
    writer.record(result)
    writer.settle()
    writer.finish([result], End())


def main(outputs: Path, count: int, steps: int) -> int:
    import mlflow  # noqa: F401  # for all of them

    fork = multiprocessing.get_context("fork")
    start = fork.Barrier(count)
    processes = [
        fork.Process(target=write, args=(outputs, number, steps, start)) for number in range(count)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return sum(process.exitcode != 0 for process in processes)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
