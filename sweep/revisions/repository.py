"""The git repository of a trainer's code."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sweep import provenance, trainers
from sweep.errors import RequestError
from sweep.revisions import git
from sweep.schema import Settings
from sweep.trainers import tree


def of(settings: Settings, said: str | None) -> Path:
    """The top of `said`, or of where the trainer's code is; raises RequestError."""
    if said is not None:
        return of_folder(said)
    top = tree.repository(settings)
    if top is None:
        raise RequestError(
            f"the code of trainer={settings.trainer.name} is in no git repository that is known:"
            " repo=PATH says where it is"
        )
    return top


def of_folder(folder: str) -> Path:
    """The top of the repository that the folder is in; raises RequestError."""
    top = provenance.toplevel(Path(folder))
    if top is None:
        raise RequestError(f"repo={folder}: no git repository")
    return top


def cwd_in(tree: Path, repo: Path) -> Path:
    """The folder in `tree` that the one we are in has its place in; ours where that is outside."""
    here = Path.cwd().resolve()
    if not here.is_relative_to(repo.resolve()):
        return here
    return tree / here.relative_to(repo.resolve())


def project_of(settings: Settings, repo: Path) -> Path:
    """The folder of the trainer's code; the whole repository where nobody knows."""
    project = trainers.of(settings).project(settings)
    return (project or repo).resolve()


class Trees:
    """Worktrees of a repository, by commit."""

    def __init__(self, repo: Path, stack: ExitStack) -> None:
        self.failed = False  # whether somebody will look into them
        self._repo, self._stack = repo, stack
        self._known: dict[str, Path] = {}

    def at(self, sha: str) -> Path:
        """The worktree of that commit."""
        if sha not in self._known:
            made = git.worktree(self._repo, sha, lambda: self.failed)
            self._known[sha] = self._stack.enter_context(made)
        return self._known[sha]

    def kept(self) -> Iterator[str]:
        """What removes each that is kept."""
        remove = ["git", "-C", str(self._repo), "worktree", "remove", "--force"]
        for made in self._known.values() if self.failed else ():
            yield shlex.join([*remove, str(made)])


@contextmanager
def kept_if_failed(repo: Path) -> Iterator[Trees]:
    """Worktrees that are gone at the end, or stay for the commands printed under a failed case."""
    with ExitStack() as stack:
        trees = Trees(repo, stack)
        yield trees
        for line in trees.kept():
            print(f"kept for the commands above; to remove it: {line}", file=sys.stderr)
