"""The folder of a sweep, and with it the sweep's id: outputs/<sweep id>."""

from __future__ import annotations

import json
import secrets
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sweep import processes
from sweep.case import file as case_file
from sweep.case.planned import Planned
from sweep.errors import RequestError, refusing
from sweep.files import inside, write_json

PLAN = "sweep.json"
A_DAY = 86_400.0
ASIDE = ".earlier"  # in a sweep's folder: earlier runs of cases that ran again
ENDED = "ended"  # when its process was done with it; not there while that goes on with it
SPARED = "spared"  # why its other cases were not run
LEFT = "left to themselves"  # the driver of a detached sweep


def claim(outputs: Path) -> Path:
    """Make outputs/<sweep id>: the time, and a suffix since shards may start in one second."""
    if outputs.is_symlink() and not outputs.exists():
        raise RequestError(
            f"outputs={outputs}: a link to {outputs.readlink()}, which is not there:"
            " make that folder, or name another"
        )
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    for _ in range(100):
        folder = outputs / f"{stamp}-{secrets.token_hex(2)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{outputs}/{stamp}-*: there is no name left")


def known(outputs: Path) -> list[Path]:
    """The folders of all sweeps, the oldest first."""
    return sorted((path.parent for path in outputs.glob(f"*/{PLAN}")), key=_age)


def find(outputs: Path, sweep_id: str) -> Path:
    """The folder of an earlier sweep, by its id or as `latest`; raises RequestError."""
    folders = known(outputs)
    if sweep_id == "latest" and folders:
        return folders[-1]
    for folder in folders:
        if folder.name == sweep_id:
            return folder
    last = ", ".join(folder.name for folder in folders[-5:])
    choices = f"the last ones: {last}" if last else "there is none yet; outputs=... says where"
    raise RequestError(f"no sweep {sweep_id} in {outputs}; {choices}")


def read_plan(folder: Path) -> dict[str, Any]:
    """sweep.json; raises RequestError for one that is damaged."""
    path = folder / PLAN
    with refusing(path, "move the sweep's folder away"):
        plan: Any = json.loads(path.read_bytes())
        if not isinstance(plan, dict):
            raise ValueError("not a plan")
    return plan


def planned_in(folder: Path) -> list[Planned]:
    """The cases of a sweep as they were planned, from its files; raises RequestError if none is."""
    cases = [case_dir.name for case_dir in case_dirs(folder)]
    files = readable(cases, lambda case_id: case_file.read(folder / case_id))
    return [file.planned for file in files.values()]


def readable(
    cases: Sequence[str], read: Callable[[str], case_file.CaseFile]
) -> dict[str, case_file.CaseFile]:
    """case.json of each case that has one; a damaged one is a note, if it is not the only one.

    Raises RequestError where none can be read.
    """
    files, problems = {}, []
    for case_id in cases:
        try:
            files[case_id] = read(case_id)
        except RequestError as error:
            problems.append(error)
    if problems and not files:
        raise problems[0]
    for problem in problems:
        print(f"left out: {problem}", file=sys.stderr)
    return files


def case_dirs(folder: Path) -> list[Path]:
    """The folders of a sweep's cases, whether they are there or not; raises RequestError."""
    return [inside(folder, str(case_id)) for case_id in read_plan(folder)["cases"]]


def leave(folder: Path) -> None:
    """Say in sweep.json that no process drives the sweep, whose jobs go on."""
    write_json(folder / PLAN, {**read_plan(folder), "driver": LEFT})


def write_plan(
    folder: Path, planned: Sequence[Planned], experiment: str, environment: Mapping[str, str],
    argv: Sequence[str],
) -> None:  # fmt: skip
    """Write sweep.json, and case.json of each case.

    A resumed sweep keeps its start time, command line and cases, and the files of cases with a
    result.
    """
    before = read_plan(folder) if (folder / PLAN).is_file() else {}
    for each in planned:
        if not case_file.exists(folder / each.case.id):
            case_file.write(each, folder / each.case.id)
    write_json(
        folder / PLAN,
        {
            "sweep_id": folder.name,
            "experiment": experiment,
            "argv": before.get("argv", [_without_secret(word) for word in argv]),
            "started": before.get("started") or _start(folder.parent),
            "driver": this_driver(),
            "environment": dict(environment),
            "cases": list(
                dict.fromkeys([*before.get("cases", []), *(case.case.id for case in planned)])
            ),
        },
    )


def _without_secret(word: str) -> str:
    """A webhook's address lets anybody post; `notify=${oc.env:NAME}` shows none, and stays."""
    key, equals, value = word.partition("=")
    is_secret = key.lstrip("+") == "notify" and not value.startswith("${")
    return f"{key}{equals}***" if is_secret and value else word


def _start(outputs: Path) -> float:
    """Now, or just after the last sweep where the clock was set back since: it is the latest."""
    ours = time.time()
    ahead = [
        theirs for folder in known(outputs) if ours <= (theirs := _age(folder)[0]) < ours + A_DAY
    ]
    return max(ahead) + 0.001 if ahead else ours


def this_driver() -> str:
    """Identifies the driving process: host, process number, start time."""
    return f"{socket.gethostname()}:{processes.this_process()}"


def is_dead(driver: str) -> bool:
    """Whether that driving process is known to be gone; of another host nobody knows."""
    try:
        host, _, process = driver.partition(":")
        return host == socket.gethostname() and not processes.is_there(process)
    except ValueError:
        return False


def is_elsewhere(driver: str) -> bool:
    """Whether that driving process runs, or ran, on another host: nothing is known of it."""
    return driver.partition(":")[0] != socket.gethostname()


def is_gone(driver: str) -> bool:
    """Whether that driving process is gone, or has to be taken for it.

    On this host that is known. One on another host counts as gone a day after it was started.
    """
    return is_old(driver) if is_elsewhere(driver) else is_dead(driver)


def end(folder: Path) -> None:
    """Say in sweep.json that its process has nothing more to do, wherever the folder is copied."""
    write_json(folder / PLAN, {**read_plan(folder), ENDED: time.time()})


def note_spared(folder: Path, why: str) -> None:
    """Say in sweep.json why the cases without a result were not run."""
    write_json(folder / PLAN, {**read_plan(folder), SPARED: why})


def is_running(folder: Path) -> bool:
    """Whether the sweep's own process may still drive it."""
    plan = read_plan(folder)
    driver = str(plan["driver"])
    return driver != LEFT and not is_gone(driver) and ENDED not in plan


def is_old(driver: str) -> bool:
    """Whether it was started more than a day ago."""
    try:
        return time.time() - float(driver.rpartition(":")[2]) > A_DAY
    except ValueError:
        return False


def _age(folder: Path) -> tuple[float, str]:
    try:
        return float(read_plan(folder)["started"]), folder.name
    except (ValueError, KeyError):
        return 0.0, folder.name
