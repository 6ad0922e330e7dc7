"""A trainer without torch: `dummy.py BEHAVIOUR OUTPUT_DIR STEPS`, one way to go wrong each.

BEHAVIOURS in the environment gives an arch, which is what a sweep varies, its behaviour.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def line(step: int, **changed: object) -> str:
    figures = {"step": step, "loss": 3 - 0.1 * step, "grad_norm": 1.0, "lr": 1e-4}
    return json.dumps({**figures, "tokens": 100, "params_moved": 1.0, **changed})


def report(directory: Path, lines: list[str]) -> None:
    if os.environ.get("RANK", "0") != "0":
        return
    with (directory / "metrics.jsonl").open("a") as file:
        for text in lines:
            print(text, file=file, flush=True)


def sleeper(*, detached: bool) -> None:
    # whose it is can be told from its command line: other tests may run on the machine
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *sys.argv[1:]],
                     start_new_session=detached)  # fmt: skip


def ancestor(levels: int) -> int:
    """The parent is the supervisor, its parent the job, and that one's parent the controller."""
    pid = os.getpid()
    for _ in range(levels):
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(status.partition("PPid:")[2].split()[0])
    return pid


def misbehave(behaviour: str) -> None:
    """What happens after the third step."""
    if behaviour == "exit_42":
        print("RuntimeError: out of cheese", file=sys.stderr)
        sys.exit(42)
    if behaviour == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour == "hang":
        sleeper(detached=True)
        time.sleep(600)
    if behaviour == "job_killed":
        os.kill(ancestor(2), signal.SIGKILL)
        time.sleep(600)
    if behaviour == "controller_killed":
        os.kill(ancestor(3), signal.SIGKILL)
        time.sleep(600)
    if behaviour == "rank_1_exits":
        if os.environ["RANK"] == "1":
            raise SystemExit(7)
        time.sleep(600)
    if behaviour == "short":
        sys.exit(0)
    if behaviour == "leftover":
        sleeper(detached=True)


CHANGED = {
    "nan": {4: {"loss": float("nan")}},
    "infinite": {4: {"grad_norm": float("inf")}},
    "dead": {step: {"grad_norm": 0.0, "params_moved": 0.0} for step in range(1, 9)},
    "twice": {4: {"step": 3}},
}


def main(behaviour: str, directory: Path, steps: int) -> None:
    behaviour = json.loads(os.environ.get("BEHAVIOURS", "{}")).get(behaviour, behaviour)
    changed = CHANGED.get(behaviour, {})
    print(f"training as {behaviour}")
    if behaviour == "fails_once" and not (mark := Path(os.environ["MARK"])).exists():
        mark.touch()
        behaviour = "exit_42"
    report(directory, [line(step, **changed.get(step, {})) for step in (1, 2, 3)])
    misbehave(behaviour)
    if behaviour == "garbage":
        report(directory, ["\x1b[31mnot json"])
    rest = range(4, steps + 1)
    report(directory, [line(**{"step": step, **changed.get(step, {})}) for step in rest])
    (directory / "environment.json").write_text(json.dumps(dict(os.environ)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
