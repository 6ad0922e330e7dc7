"""A small trainer, and a repository with a history of it, some of which cannot run."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from sweep.case import folder
from sweep.case.machine import Machine
from sweep.plan import plan
from tests.sweep.planning import composed

TRAINER = '''"""Writes the figures of a loss that falls."""
import json, pathlib, sys
from rates import OFF
folder, steps, cp = sys.argv[1:]
with pathlib.Path(folder, "metrics.jsonl").open("w") as file:
    for step in range(1, int(steps) + 1):
        figures = {"loss": 3 - step / 10 + OFF * (cp != "1"), "grad_norm": 1.0, "lr": 1e-4}
        figures |= {"tokens": 10, "params_moved": 1.0, "global_batch_digest": str(step)}
        print(json.dumps({"step": step} | figures), file=file)
'''
CRASHES = "raise RuntimeError('no such option')\nOFF = 0.0\n"
WHO = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


def git(repo: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(repo), *words],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **WHO},
    )
    return done.stdout.strip()


def history(repo: Path, files: list[Mapping[str, str]]) -> list[str]:
    """A commit for each of these sets of files; their shas."""
    repo.mkdir()
    git(repo, "init", "--quiet", "--initial-branch=main")
    shas = []
    for number, changed in enumerate(files):
        for name, text in changed.items():
            (repo / name).write_text(text)
        git(repo, "add", "--all")
        git(repo, "commit", "--quiet", "--allow-empty", "--message", f"change {number}\n\nWhy.")
        shas.append(git(repo, "rev-parse", "HEAD"))
    return shas


def state(repo: Path) -> list[str]:
    """What a search has to leave as it was."""
    words = (
        ["status", "--porcelain", "--ignored"],
        ["for-each-ref"],
        ["worktree", "list"],
        ["symbolic-ref", "HEAD"],
        ["stash", "list"],
        ["config", "--list", "--local"],
    )
    return [git(repo, *one) for one in words]


def words_for(script: str, outputs: Path) -> list[str]:
    """The words of a sweep over the trainer, at a cost of a second."""
    argv = json.dumps(["{python}", script, "{output_dir}", "{steps}", "{cp}"])
    return [
        "arch=llama",
        "feature=none",
        "trainer=command",
        f"trainer.argv={argv}",
        f"outputs={outputs}",
    ]


def planned_sweep(outputs: Path, words: list[str], layouts: tuple[str, ...]) -> str:
    """A sweep of these layouts as it lies on disk before anything of it has run; its id."""
    cases = plan([[f"layout={layout}", *words] for layout in layouts], composed, Machine())
    made = folder.claim(outputs)
    folder.write_plan(made, cases, "adhoc", {}, [])
    return made.name
