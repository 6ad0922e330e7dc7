"""What a case is recorded with: its identity, and the provenance of what it ran.

The commit is that of the trainer's code. What the trainer imported it says itself, in `about.json`.
"""

from __future__ import annotations

from pathlib import Path

import tiny_models
from sweep import provenance, trainers
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.run import warm
from sweep.schema import Settings
from sweep.trainers.base import About
from sweep.trainers.tree import moved

UNREADABLE = "unreadable"


def provenance_of(device: str, config_dir: str | None) -> dict[str, str]:
    """Versions, host, and digests of our code and of the rules, as they are now."""
    return provenance.environment(device) | provenance.own_code() | provenance.rules(config_dir)


def commit(settings: Settings) -> dict[str, str]:
    """The git commit of the trainer's code; of what a server has imported, when it did."""
    settings = moved(settings)
    project = trainers.of(settings).project(settings)
    if project is None:
        return provenance.UNKNOWN
    return warm.commit_of(settings) or provenance.commit(project)


def note_checkpoint(facts: Facts, model: Path) -> None:
    """Put the digest of the checkpoint into the case's identity."""
    if facts.identity is not None:
        facts.identity.checkpoint = tiny_models.content_digest(model)


def note_launch(facts: Facts, directory: Path) -> None:
    """Put what the trainer says of a launch into the facts; later launches may add other code."""
    try:
        about = About.read(directory)
    except RequestError as error:
        about = About(code=UNREADABLE)
        facts.error = facts.error or str(error)
    if facts.identity is not None:
        facts.identity.data = facts.identity.data or about.data
        facts.identity.checkpoint = facts.identity.checkpoint or about.checkpoint
    codes = [*filter(None, facts.environment.get("trainer_code", "").split(" + ")), about.code]
    commit = " + ".join(dict.fromkeys(filter(None, codes)))
    facts.environment |= about.versions | ({"trainer_code": commit} if commit else {})
