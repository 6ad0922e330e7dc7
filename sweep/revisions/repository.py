"""The git repository of a trainer's code."""

from __future__ import annotations

from pathlib import Path

from sweep import provenance, trainers
from sweep.errors import RequestError
from sweep.schema import Settings
from sweep.trainers import tree


def of(settings: Settings, said: str | None) -> Path:
    """The top of `said`, or of where the trainer's code is; raises RequestError."""
    if said is not None:
        top = provenance.toplevel(Path(said))
        if top is None:
            raise RequestError(f"repo={said}: no git repository")
        return top
    top = tree.repository(settings)
    if top is None:
        raise RequestError(
            f"the code of trainer={settings.trainer.name} is in no git repository that is known:"
            " repo=PATH says where it is"
        )
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
