"""`git bisect run` over the revisions between a good and a bad one."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import MachineryError, RequestError
from sweep.revisions import probe, process
from sweep.revisions.failure import State
from sweep.revisions.git import argv, distance, git
from sweep.revisions.trial import OUTCOME, Outcome, Trial

FIRST = re.compile(r"^# first bad commit: \[(\w+)\]", re.MULTILINE)
POSSIBLE = re.compile(r"^# possible first bad commit: \[(\w+)\]", re.MULTILINE)


@dataclass(frozen=True)
class Found:
    """The first bad revision, or all that may be it where some could not run; the one before."""

    candidates: list[str]  # shas
    before: str  # sha of the nearest good one

    @property
    def first(self) -> str | None:
        """The only one that it can be."""
        return self.candidates[0] if len(self.candidates) == 1 else None


@dataclass
class Search:
    """A trial over the revisions that are checked out in `tree`, one after another."""

    trial: Trial
    tree: Path

    def check_ends(self, good: str, bad: str) -> None:
        """Run both ends; raises RequestError where they are not what they were said to be."""
        before, name = self._at(good)
        if before.shown.checks or before.reason:
            raise RequestError(f"good={name} is not good: {before.reason or before.shown.line}")
        self.trial.good = before.revision
        self.trial.write()
        after, name = self._at(bad)
        if after.reason:
            raise RequestError(f"bad={name} cannot run: {after.reason}")
        if not after.shown.checks:
            hint = "" if self.trial.check else "; check=NAME counts an advisory check as well"
            raise RequestError(f"bad={name} is not bad: the case passes there as at good{hint}")
        self.trial.wanted = after.shown
        self.trial.write()
        for outcome, state in ((before, State.GOOD), (after, State.BAD)):
            self.trial.keep(outcome.model_copy(update={"state": state}))

    def run(self, good: str, bad: str) -> Found:
        """Bisect; raises MachineryError where that ends early."""
        git(self.tree, "bisect", "start", bad, good)
        code, said = process.run([*argv(self.tree, "bisect", "run"), *self._probe()], self.tree)
        log = git(self.tree, "bisect", "log")
        candidates = FIRST.findall(log) or POSSIBLE.findall(log)
        if not candidates:
            last = (said.strip().splitlines() or [f"exit code {code}"])[-1]
            raise MachineryError(f"git bisect run ended early: {last}")
        goods = git(self.tree, "for-each-ref", "--format=%(objectname)", "refs/bisect/good-*")
        nearest = min(goods.split(), key=lambda sha: distance(self.tree, sha, candidates[-1]))
        return Found(list(dict.fromkeys(candidates)), nearest)

    def outcomes(self) -> list[Outcome]:
        """Of all revisions that were tried."""
        paths = sorted(self.trial.path.glob(f"*/{OUTCOME}"), key=lambda path: path.stat().st_mtime)
        return [Outcome.model_validate_json(path.read_bytes()) for path in paths]

    def name_of(self, sha: str) -> str:
        """What a revision is called in the trial's folder."""
        git(self.tree, "checkout", "--quiet", "--detach", sha)
        return probe.name_of(self.trial, self.tree)

    def _at(self, ref: str) -> tuple[Outcome, str]:
        name = self.name_of(ref)
        code, _ = process.run(self._probe(), self.tree)
        outcome = self.trial.outcome(name)
        if outcome is None:
            raise MachineryError(f"{name}: the case could not be run (exit code {code}), see above")
        return outcome, name

    def _probe(self) -> list[str]:
        module = ["-P", "-m", "sweep.revisions.probe"]
        return [sys.executable, *module, str(self.trial.path), str(self.tree)]
