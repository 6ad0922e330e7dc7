"""python -m sweep.bisect: the first commit, or release of a package, at which a case fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sweep import trainers
from sweep.case.planned import Planned
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, Argument, Usage
from sweep.errors import RequestError
from sweep.files import ConfDirs
from sweep.judge import ready
from sweep.revisions import git, of_sweep, releases, repository, telling
from sweep.revisions.search import Search
from sweep.session.stopping import watched
from sweep.trainers.base import python_of

ANOTHER = "/another/python"
USAGE = Usage(
    "sweep.bisect",
    "The first commit of the trainer's repository at which a case fails, or the first release of"
    "\na package. The case runs with what its sweep compares it with, in a worktree or an"
    "\nenvironment of its own. A commit that cannot run is skipped. The driver is today's: what is"
    "\nin sweep/ itself is not searched. Exit codes: 0 found, 1 it is one of several that could not"
    "\nrun, 2 wrong request, 3 the search failed.",
    "python -m sweep.bisect case=llama-cp4_ep1-base good=v1.2 bad=HEAD",
    (
        Argument("case", "a case's id, as a sweep reports it"),
        Argument("good", "a commit (or, with package, a release) at which it passes"),
        Argument("bad", "a later one at which it fails; else HEAD, or the newest", optional=True),
        Argument("repo", "the repository, if it is not that of the trainer's code", optional=True),
        Argument("package", "bisect this package's releases instead of commits", optional=True),
        Argument("wheels", "a folder with its wheels; without it pip's index", optional=True),
        Argument("timeout", "seconds that a launch may take; else as in its sweep", optional=True),
        Argument("check", "the check that fails, an advisory one too; else any", optional=True),
        Argument("sweep", "the sweep that has the case; latest: the last that has it", "latest"),
        OUTPUTS,
    ),
)


def main(values: dict[str, str], conf: ConfDirs) -> int:
    """Search, print what was found, and return the exit code; raises RequestError."""
    ready(conf)
    _check(values)
    outputs, timeout = Path(values["outputs"]), _timeout(values)
    planned = of_sweep.find(outputs, values["case"], values["sweep"])
    searching = _commits if "package" not in values else _releases
    with watched(), searching(values, planned) as (tree, good, bad, more):
        trial = of_sweep.trial(planned, outputs, conf, values.get("check"))
        search = Search(trial.model_copy(update={**more, "timeout": timeout}), tree)
        search.trial.write()
        search.check_ends(good, bad)
        found = search.run(good, bad)
        for line in telling.told(found, search):
            print(line)
    return 0 if found.first else 1


Range = tuple[Path, str, str, Mapping[str, object]]
"""A folder in which to check out, the good commit, the bad one, and what a trial is told more."""


@contextmanager
def _commits(values: Mapping[str, str], planned: Sequence[Planned]) -> Iterator[Range]:
    """A worktree of the trainer's repository."""
    repo = repository.of(planned[-1].settings, values.get("repo"))
    named = {"bad": "HEAD", **values}
    good, bad = (git.resolved(repo, named[said], said) for said in ("good", "bad"))
    if good == bad or not git.is_ancestor(repo, good, bad):
        raise RequestError(
            f"good={named['good']} is not before bad={named['bad']} in {repo}:"
            f" git -C {repo} merge-base names a commit that is before both"
        )
    with git.worktree(repo, good) as tree:
        yield (
            tree,
            good,
            bad,
            {
                "tree": str(tree),
                "cwd": str(repository.cwd_in(tree, repo)),
                "project": str(repository.project_of(planned[-1].settings, repo)),
            },
        )


@contextmanager
def _releases(values: Mapping[str, str], planned: Sequence[Planned]) -> Iterator[Range]:
    """A repository made for it, with a commit for each release."""
    settings, package = planned[-1].settings, values["package"]
    _check_uses_python(planned[-1])
    python = python_of(settings)
    wheels = str(Path(values["wheels"]).resolve()) if "wheels" in values else None
    known = releases.known(package, wheels, python)
    bad = values.get("bad", str(known[-1]))
    chosen = releases.between(known, package, values["good"], bad)
    with releases.history(package, chosen) as tree:
        good = git.resolved(tree, f"HEAD~{len(chosen) - 1}", "good")
        bad = git.resolved(tree, "HEAD", "bad")
        more = {"package": package, **({"wheels": wheels} if wheels else {})}
        yield tree, good, bad, more


def _timeout(values: Mapping[str, str]) -> float | None:
    return arguments.seconds("timeout", values["timeout"]) if "timeout" in values else None


def _check(values: Mapping[str, str]) -> None:
    """Raise RequestError for arguments that do not go together."""
    if "wheels" in values and "package" not in values:
        raise RequestError("wheels=...: say which package=NAME is bisected")
    if "package" in values and "repo" in values:
        raise RequestError("repo=... is about commits, and package=... about releases: say one")


def _check_uses_python(planned: Planned) -> None:
    """Raise RequestError for a trainer that another interpreter would not reach."""
    trainer = trainers.of(planned.settings)
    conf = replace(planned.settings.trainer, python=ANOTHER)
    settings = replace(planned.settings, trainer=conf)
    with TemporaryDirectory() as folder:
        made = trainer.command(settings, trainer.launches(settings)[0], Path(folder), None)
    if not any(ANOTHER in word for word in (*made.argv, *made.env.values())):
        raise RequestError(
            f"package=...: trainer={conf.name} starts an interpreter of its own choice; write"
            " {python} in trainer.argv, or torchrun: true"
        )


if __name__ == "__main__":
    sys.exit(arguments.run(USAGE, main))
