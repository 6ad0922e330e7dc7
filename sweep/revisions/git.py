"""Git, in a worktree of our own: the user's checkout, branches and hooks are left alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sweep.errors import MachineryError, RequestError

SHORT = 9  # characters of a commit, as everywhere here
FIELDS = "%H%n%an <%ae>%n%ad%n%B"
ALONE = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "commit.gpgSign=false",
    "-c",
    "advice.detachedHead=false",
)


@dataclass(frozen=True)
class Commit:
    """What a commit says of itself."""

    sha: str
    author: str
    date: str
    message: str

    @property
    def short(self) -> str:
        """Its first characters."""
        return self.sha[:SHORT]


def environment() -> dict[str, str]:
    """Ours without what a hook or an alias of git's sets: it would name another repository."""
    return {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}


def argv(folder: Path, *words: str) -> list[str]:
    """A git command in the folder, without the user's hooks."""
    return ["git", *ALONE, "-C", str(folder), *words]


def git(folder: Path, *words: str) -> str:
    """What git prints; raises MachineryError with what it complains of."""
    done = _done(folder, *words)
    if done.returncode != 0:
        raise MachineryError(f"git {words[0]}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


def resolved(repo: Path, ref: str, said: str) -> str:
    """The sha of a commit; raises RequestError where the repository has none of that name."""
    done = _done(repo, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    if done.returncode != 0:
        raise RequestError(f"{said}={ref}: {repo} has no such commit; git -C {repo} log shows them")
    return done.stdout.strip()


def is_ancestor(repo: Path, one: str, other: str) -> bool:
    """Whether `other` came out of `one`."""
    return _done(repo, "merge-base", "--is-ancestor", one, other).returncode == 0


def commit(repo: Path, ref: str) -> Commit:
    """What a commit says of itself."""
    sha, author, date, message = git(repo, "show", "-s", f"--format={FIELDS}", ref).split("\n", 3)
    return Commit(sha, author, date, message.strip())


def distance(repo: Path, one: str, other: str) -> int:
    """How many commits `other` has that `one` has not."""
    return int(git(repo, "rev-list", "--count", f"{one}..{other}"))


@contextmanager
def worktree(repo: Path, ref: str, is_kept: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """A checkout of its own, in a temporary folder that is gone afterwards, unless it is kept."""
    folder = Path(tempfile.mkdtemp(prefix="sweep-revision-")).resolve()
    tree = folder / repo.name
    try:
        git(repo, "worktree", "add", "--detach", "--quiet", str(tree), ref)
        yield tree
    finally:
        if not is_kept():
            _done(repo, "worktree", "remove", "--force", str(tree))
            shutil.rmtree(folder, ignore_errors=True)
            _done(repo, "worktree", "prune")


def clean(tree: Path) -> None:
    """Undo what a trainer wrote into our tree, so that the next checkout finds it as it was."""
    git(tree, "reset", "--quiet", "--hard")
    git(tree, "clean", "-fdxq")


def _done(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            argv(folder, *words), capture_output=True, text=True, env=environment()
        )
    except FileNotFoundError:
        raise RequestError("git is needed, and not installed") from None
