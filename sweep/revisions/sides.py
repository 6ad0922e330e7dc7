"""One of the two commits that are compared: its cases, run now or recorded before."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweep.case import folder as sweep_folder
from sweep.checks import Context
from sweep.errors import MachineryError, RequestError
from sweep.files import ConfDirs
from sweep.judge import judge
from sweep.plan import spelled
from sweep.report import Result
from sweep.revisions import process
from sweep.revisions.git import SHORT
from sweep.revisions.repository import Trees, cwd_in
from sweep.session.rejudge import with_result
from sweep.store import CaseRecord, Reader, SweepRecord
from sweep.store.entries import verdict_tags


@dataclass(frozen=True)
class Side:
    """A commit, and what runs at both."""

    sha: str
    words: Sequence[str]
    outputs: Path
    conf: ConfDirs
    repo: Path


@dataclass(frozen=True)
class Ran:
    """The cases of a commit; the sweep that ran them, or the last of those that did."""

    sweep: SweepRecord
    cases: list[CaseRecord]


def run(side: Side, trees: Trees, only: Sequence[str] = ()) -> Ran:
    """Sweep in a worktree of the commit; raises RequestError or MachineryError if that fails."""
    tree = trees.at(side.sha)
    words = [*side.words, f"outputs={spelled(str(side.outputs))}"]
    if only:
        words.append(f"cases=[{','.join(map(spelled, only))}]")
    marker = f"trainer.tree={spelled(str(tree))}"
    own = [] if side.conf.own is None else ["--config-dir", str(side.conf.own)]
    command = [sys.executable, "-P", "-m", "sweep", "-m", *own, *words, marker]
    print(f"{side.sha[:SHORT]}:", file=sys.stderr, flush=True)
    code, _ = process.run(command, cwd_in(tree, side.repo), keep=False)
    if code == 2:
        raise RequestError(f"{side.sha[:SHORT]}: the sweep was refused, see above")
    if code not in (0, 1):
        raise MachineryError(f"{side.sha[:SHORT]}: the sweep failed (exit code {code}), see above")
    made = [
        one
        for one in sweep_folder.known(side.outputs)
        if marker in sweep_folder.read_plan(one).get("argv", [])
    ]
    reader = Reader.at(side.outputs)
    sweep = reader.find(made[-1].name)
    return Ran(sweep, reader.cases(sweep))


def of_base(side: Side, head: Ran, trees: Trees) -> Ran:
    """The head's cases at the base: what is recorded like for like, and the rest run now.

    Judged by today's rules, each with all the others of that commit.
    """
    known = Reader.at(side.outputs).at_commit(side.sha, head.cases)
    ids = {case.case_id for case in known}
    missing = [case.case_id for case in head.cases if case.case_id not in ids]
    ran = run(side, trees, missing) if missing else None
    if known:
        said = ", ".join(sorted(ids))
        print(f"{side.sha[:SHORT]}: recorded before: {said}", file=sys.stderr)
    every = [*known, *(ran.cases if ran else [])]
    return Ran(ran.sweep if ran else head.sweep, _judged(every, side.conf))


def as_commit(ran: Ran, sha: str) -> SweepRecord:
    """The sweep under the name of its commit, with what its cases ran on."""
    tags = ran.cases[0].tags if ran.cases else ran.sweep.tags
    return replace(ran.sweep, sweep_id=sha[:SHORT], tags=tags | {"git_sha": sha})


def _judged(cases: Sequence[CaseRecord], conf: ConfDirs) -> list[CaseRecord]:
    context = Context(with_result((case.case_id, case.facts) for case in cases), conf=conf)
    return [_judged_one(case, context) for case in cases]


def _judged_one(case: CaseRecord, context: Context) -> CaseRecord:
    if case.facts is None:
        return case
    result = Result(judge(case.facts, context), Path(), "", case.facts)
    kept = {key: value for key, value in case.tags.items() if not key.startswith("check.")}
    return replace(case, tags=kept | verdict_tags(result))
