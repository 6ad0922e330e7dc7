"""What a case computes: the settings, checkpoint and data that make two results comparable.

Every setting is part of it, a new one too, unless it is listed in `NOT_COMPUTED`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, Field

from sweep.case.labels import plain
from sweep.schema import Settings

NOT_COMPUTED = (
    "launch",  # how the trainer is started, for how long, beside how many others
    "noise",  # how often it is started again
    "export", "trainer.export",  # what it writes besides
    "outputs", "sweep_id", "case_id", "gpus", "replay", "attempts",  # where it runs
    # about the sweep
    "suite", "variant", "cases", "shard", "resume_sweep", "rerun", "references", "host_gone",
    "plan", "detach", "locate", "notify", "notify_form", "notify_always",
    # where its code is; which code it was is provenance
    "trainer.project", "trainer.tree", "trainer.python",
    "trainer.archs", "trainer.layouts", "trainer.features", "trainer.not_shown",  # for the plan
)  # fmt: skip
"""Settings, and groups of settings, that change nothing in what is computed."""

LENGTH = 12  # of a digest: more would only lengthen messages
LONG = 120  # characters of a value; of a longer one its digest is kept


class Identity(BaseModel):
    """What must be the same in two cases for their figures to be compared."""

    settings: dict[str, Any] = Field(default_factory=dict)  # `optim.lr` -> 1e-4
    checkpoint: str | None = None  # digest of the weights and their configuration; None: unknown
    data: str | None = None  # digest of the tokens, labels and positions; None: unknown


def identity_of(settings: Settings) -> Identity:
    """The identity of a case, before its checkpoint and data are known."""
    return Identity(settings=flat(settings))


def flat(settings: Settings) -> dict[str, Any]:
    """`optim.lr` -> 1e-4, of all settings that change what is computed."""
    pairs = dict(_leaves(plain(settings)))
    return {key: value for key, value in pairs.items() if not is_under(key, NOT_COMPUTED)}


def is_under(key: str, groups: tuple[str, ...]) -> bool:
    """Whether the setting is one of these, or in a group of them: `optim.lr` is under `optim`."""
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def digest(content: str | bytes) -> str:
    """A short hash, to tell two contents apart."""
    data = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(data).hexdigest()[:LENGTH]


def _leaves(values: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """As they are read back from JSON, long texts by their digest."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            text = json.dumps(value)
            yield f"{prefix}{key}", digest(text) if len(text) > LONG else value
