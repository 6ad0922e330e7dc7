"""How often `sweep.locate` finds where a planted fault is: stage and module scored apart.

    python -P benchmarks/locate.py --out /tmp/locate [--only REGEX] [--minutes 30]

Goes over the numeric faults of conf/suite/faults.yaml, with the truth of benchmarks/locate.yaml,
one strength of each before the second. One warm server serves all, as within a sweep. Results are
added to OUT/results.jsonl; what is there is not run again. docs/locate.md has the table.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

import sweep.cli.app  # noqa: F401  # registers the schema
from sweep.case.folder import write_plan
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import MachineryError, RequestError
from sweep.files import conf_dir
from sweep.locate.look import look
from sweep.locate.place import OUTSIDE, WHOLE
from sweep.plan import plan, spelled, varying_keys
from sweep.run import launch, warm
from sweep.run.job import checkpoint_of

TRUTH = Path(__file__).with_suffix(".yaml")
NAMES = {"outside": OUTSIDE, "whole": WHOLE}
PLAIN = {"layout": "single", "feature": "none", "fault": "null"}
SERVER = ("-P", "-m", "sft.warm.server")


def main() -> None:
    """Look for the faults that are left, and print the table of all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="a regular expression for faults")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin none after so many")
    args = parser.parse_args()
    results = args.out / "results.jsonl"
    args.out.mkdir(parents=True, exist_ok=True)
    done = read(results)
    deadline = time.monotonic() + 60 * args.minutes
    server = started(args.out)
    try:
        for fault, row, check in faults():
            if fault in {one["fault"] for one in done} or not re.search(args.only, fault):
                continue
            if time.monotonic() > deadline:
                break
            done.append(one := looked_for(fault, row, check, args.out))
            with results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(one) + "\n")
            print(json.dumps(one), flush=True)
    finally:
        server.stop()
    print(table(done))


def read(path: Path) -> list[dict[str, Any]]:
    """What is known already."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def started(folder: Path) -> warm.Servers:
    """The server that a sweep would have; launches find it by the environment."""
    env = launch.launch_variables("cpu", None)
    server = warm.Servers([(sys.executable, *SERVER)], env, folder / "server.log")
    os.environ |= server.addresses()
    return server


def faults() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Each fault that has a truth, its row of the suite and its check; first strengths first."""
    suite = yaml.safe_load((conf_dir() / "suite" / "faults.yaml").read_text())
    checks = {fault: check for check, names in suite["caught_by"].items() for fault in names}
    truth = yaml.safe_load(TRUTH.read_text())
    by_name: dict[str, list[tuple[str, dict[str, Any], str]]] = {}
    for row in suite["rows"]:
        for fault in row["fault"] if isinstance(row["fault"], list) else [row["fault"]]:
            name = str(fault).partition(":")[0]
            if name in truth or fault in truth:
                key = f"{name} {row.get('data.micro_batch', '')}"
                by_name.setdefault(key, []).append((fault, row, checks[name]))
    return filter(None, chain.from_iterable(zip_longest(*by_name.values())))


def looked_for(fault: str, row: dict[str, Any], check: str, out: Path) -> dict[str, Any]:
    """Plant it, look for it, and score what is found."""
    folder, case_id, case = planned(fault, row, out)
    against = {"oracle": "oracle", "resume": "uninterrupted"}.get(check)
    stage, module = expected(fault, case)
    began = time.monotonic()
    try:
        place = look(folder, case_id, against).place
        found = ["nothing", ""] if place is None else [place.stage, place.module]
    except (RequestError, MachineryError) as error:
        found = ["error", str(error)]
    return {
        "fault": fault + (" rows of 2" if row.get("data.micro_batch") else ""),
        "case": case_id,
        "check": check,
        "truth": [stage, module],
        "found": found,
        "stage": found[0] == stage,
        "module": fnmatch.fnmatchcase(found[1], module),
        "seconds": time.monotonic() - began,
    }


def planned(fault: str, row: dict[str, Any], out: Path) -> tuple[Path, str, Planned]:
    """A sweep's folder with the case and the clean ones that it may be compared with."""
    one = {key: first(value) for key, value in row.items()} | {"fault": spelled(fault)}
    rows = [one | {"fault": "null"}, one | PLAIN, one]
    combinations = [list(w) for w in dict.fromkeys(map(words, rows))]
    cases = plan(combinations, composed, Machine(), varying_keys(combinations))
    folder = out / re.sub(r"[^A-Za-z0-9_.]", "_", fault)
    write_plan(folder, cases, "locate", {}, [])
    return folder, cases[-1].case.id, cases[-1]


def first(value: Any) -> str:
    """The first of a row's choices; of booleans and numbers as Hydra spells them."""
    value = value[0] if isinstance(value, list) else value
    return "null" if value is None else str(value)


def words(values: dict[str, str]) -> tuple[str, ...]:
    """Overrides."""
    return tuple(f"{key}={value}" for key, value in values.items())


def composed(overrides: Any) -> DictConfig:
    """As the command line composes them."""
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("config", list(overrides))


def expected(fault: str, case: Planned) -> tuple[str, str]:
    """The stage and the pattern of the module that the truth has."""
    truth = yaml.safe_load(TRUTH.read_text())
    stage, module = truth.get(fault) or truth[fault.partition(":")[0]]
    config = json.loads((checkpoint_of(case.settings) / "config.json").read_text())
    last = str(int(config.get("text_config", config)["num_hidden_layers"]) - 1)
    return stage, NAMES.get(module, module).replace("LAST", last)


def table(done: list[dict[str, Any]]) -> str:
    """Markdown, with the score."""
    marks = {True: "yes", False: "no"}
    lines = [
        f"| `{one['fault']}` | {one['check']} | {one['found'][0]} | `{one['found'][1][:60]}` |"
        f" {marks[one['stage']]} | {marks[one['module']]} | {one['seconds']:.0f} |"
        for one in sorted(done, key=lambda one: one["fault"])
    ]
    head = [
        "| fault | check | stage found | module found | stage | module | s |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    count = max(1, len(done))
    stage, module = (sum(one[key] for one in done) for key in ("stage", "module"))
    seconds = statistics.median([one["seconds"] for one in done] or [0.0])
    score = (
        f"{len(done)} faults: stage right in {stage} ({stage / count:.0%}), module in"
        f" {module} ({module / count:.0%}), median {seconds:.0f} s"
    )
    return "\n".join([score, "", *head, *lines])


if __name__ == "__main__":
    main()
