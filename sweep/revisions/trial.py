"""A case and what it is compared with, run at one revision after the other and judged there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, Field

from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.case.planned import Planned
from sweep.checks import Context
from sweep.errors import RequestError, refusing
from sweep.facts import Facts
from sweep.files import ConfDirs, write_json
from sweep.judge import Judgement, findings, judge
from sweep.revisions.failure import Shown, State
from sweep.run import job
from sweep.session import ties
from sweep.session.rejudge import with_result

CASES = "cases"
TRIAL = "trial.json"
OUTCOME = "outcome.json"


class Outcome(BaseModel):
    """What a revision came to."""

    revision: str
    state: State | None = None  # None: it is not known yet what is searched for
    shown: Shown = Field(default_factory=Shown)
    reason: str = ""  # why nothing was started


class Trial(BaseModel):
    """What runs, where, and what is searched for; the same for all revisions of a search."""

    case_id: str
    cases: list[str]  # ids, what it is compared with first; their case.json is in CASES
    folder: str  # of the search
    cwd: str
    tree: str | None = None
    project: str | None = None  # where the trainer's code is, which tree has instead
    config_dir: str | None = None
    check: str | None = None
    timeout: float | None = None  # seconds of a launch; None: as planned
    package: str | None = None
    wheels: str | None = None
    python: str  # the interpreter of the trainer's environment
    wanted: Shown | None = None
    good: str | None = None  # the revision whose figures are the baseline

    @classmethod
    def read(cls, folder: Path) -> Trial:
        """Of a search; raises RequestError for a damaged file."""
        with refusing(folder / TRIAL):
            return cls.model_validate_json((folder / TRIAL).read_bytes())

    def write(self) -> None:
        """For the process that runs it."""
        write_json(self.path / TRIAL, self.model_dump())

    @property
    def path(self) -> Path:
        """The folder of the search."""
        return Path(self.folder)

    def outcome(self, revision: str) -> Outcome | None:
        """What is known of a revision."""
        path = self.path / revision / OUTCOME
        return Outcome.model_validate_json(path.read_bytes()) if path.is_file() else None

    def facts(self, revision: str) -> Facts | None:
        """Of the case at a revision."""
        return facts_file.load_or_why(self.path / revision / self.case_id)[0]

    def run(self, revision: str, python: str | None) -> Outcome:
        """Run and judge the case at the revision that is checked out, or installed."""
        folder = self.path / revision
        planned = [self._planned(case_id, folder, python) for case_id in self.cases]
        with _in(Path(self.cwd)):
            judgement, facts = self._judged(planned, folder)
        findings.save(judgement, folder / self.case_id)
        shown = Shown.of(judgement, facts, self.check)
        state = None if self.wanted is None else shown.state(self.wanted)
        return self.keep(Outcome(revision=revision, state=state, shown=shown))

    def keep(self, outcome: Outcome) -> Outcome:
        """Write down what a revision came to."""
        write_json(self.path / outcome.revision / OUTCOME, outcome.model_dump(mode="json"))
        return outcome

    def _planned(self, case_id: str, folder: Path, python: str | None) -> Planned:
        file = case_file.read(self.path / CASES / case_id).planned
        trainer = file.settings.trainer
        if self.tree is not None:
            trainer = replace(trainer, tree=self.tree, project=self.project)
        if python is not None:
            trainer = replace(trainer, python=python)
        settings = replace(
            file.settings, outputs=str(folder.parent), sweep_id=folder.name, trainer=trainer
        )
        if self.timeout is not None:
            limited = replace(settings.launch, timeout_seconds=self.timeout)
            settings = replace(settings, launch=limited)
        config_dir = self.config_dir or file.config_dir
        return replace(file, settings=settings, config_dir=config_dir)

    def _judged(self, planned: Sequence[Planned], folder: Path) -> tuple[Judgement, Facts]:
        for case in planned:
            case_file.write(case, folder / case.case.id)
            with _with(case.env):
                job.run_case(case.settings, case.case, folder / case.case.id)
        for tied in ties.to_settle(planned, self._context(folder)):
            with _with(tied.env):
                job.replay_case(tied.settings, folder / tied.case.id)
        context = self._context(folder)
        facts = context.sweep.get(self.case_id)
        if facts is None:
            raise RequestError(f"{folder / self.case_id}: the case left no facts")
        return judge(facts, context), facts

    def _context(self, folder: Path) -> Context:
        """The facts of this revision, and as earlier ones those of the good revision."""
        known = ((name, facts_file.load_or_why(folder / name)[0]) for name in self.cases)
        good = self.facts(self.good) if self.good is not None else None
        last = {self.case_id: good} if good is not None else {}
        own = self.config_dir or case_file.read(folder / self.case_id).config_dir
        return Context(with_result(known), last_good=last, conf=ConfDirs.having(own))


@contextmanager
def _in(folder: Path) -> Iterator[None]:
    """A trainer may be named by its place relative to where it was started."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _with(env: Mapping[str, str]) -> Iterator[None]:
    """The case's own environment, and no compiled file that another revision would find.

    Python takes an old .pyc for a new source of the same size and second.
    """
    added = {**env, "PYTHONDONTWRITEBYTECODE": "1"}
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
