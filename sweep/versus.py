"""python -m sweep.versus: two commits of the trainer's repository side by side."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from sweep import judge
from sweep.checks import thresholds
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, Argument, Usage
from sweep.compare import page
from sweep.compare.page import Page
from sweep.compare.rows import is_good
from sweep.errors import RequestError
from sweep.files import ConfDirs, write_text
from sweep.revisions import git, repository
from sweep.revisions.sides import Side, as_commit, of_base, run
from sweep.session.stopping import watched
from sweep.store import Reader

USAGE = Usage(
    "sweep.versus",
    "Two commits of the trainer's repository side by side, each in a worktree: runs the suite at"
    "\nthe head, and at the base what is not recorded of that commit like for like; compares as"
    "\nsweep.compare does. The driver is today's. Other words are those of a sweep, as arch=llama."
    "\nExit codes: 0 no regression, 1 a regression, 2 wrong request, 3 a sweep failed.",
    "python -m sweep.versus base=main suite=smoke",
    (
        Argument("base", "a commit"),
        Argument("head", "another", "HEAD"),
        Argument("repo", "the repository, if it is not the one we are in", optional=True),
        Argument("markdown", "write the comparison there as Markdown too", optional=True),
        OUTPUTS,
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run and compare as the command line says; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    own = {argument.name for argument in USAGE.arguments}
    words = [word for word in argv if "=" in word and not word.startswith("-")]
    words = [word for word in words if word.partition("=")[0] not in own]
    return arguments.run(
        USAGE, partial(_versus, words), [word for word in argv if word not in words]
    )


def _versus(words: list[str], values: dict[str, str], conf: ConfDirs) -> int:
    judge.ready(conf)
    repo = repository.of_folder(values.get("repo", "."))
    base, head = (git.resolved(repo, values[said], said) for said in ("base", "head"))
    if base == head:
        raise RequestError(f"base and head are both {base[: git.SHORT]}")
    _check(words, repo, values["head"])
    outputs = Path(values["outputs"]).absolute()
    with watched(), repository.kept_if_failed(repo) as trees:
        side = partial(Side, words=words, outputs=outputs, conf=conf, repo=repo)
        now = run(side(sha=head), trees)
        before = of_base(side(sha=base), now, trees)
        reader = Reader.at(outputs)
        planned = reader.plan(now.sweep)["cases"]
        ends = as_commit(before, base), as_commit(now, head)
        compared = Page.of(*ends, before.cases, now.cases, thresholds.table(conf), planned)
        _tell(compared, values.get("markdown"))
        trees.failed = not all(map(is_good, (*before.cases, *now.cases)))
    return int(bool(compared.regressions))


def _check(words: Sequence[str], repo: Path, head: str) -> None:
    """Raise RequestError for words that a sweep would take as something else; note changes."""
    named = [word.partition("=")[0] for word in words]
    if not {"suite", "arch"} & set(named):
        raise RequestError(
            f"say what to run: suite=smoke, or arch=... layout=...; as in: {USAGE.example}"
        )
    for key in ("plan", "detach", "shard", "resume_sweep", "rerun", "trainer.tree"):
        if key in named:
            raise RequestError(f"{key}=...: both commits run the same cases, and all of them")
    if head == "HEAD" and git.git(repo, "status", "--porcelain", "--untracked-files=no"):
        print(f"head is HEAD, without what {repo} has uncommitted", file=sys.stderr)


def _tell(compared: Page, markdown: str | None) -> None:
    page.show(compared, Console())
    if markdown is not None:
        write_text(Path(markdown), page.markdown(compared))


if __name__ == "__main__":
    sys.exit(main())
