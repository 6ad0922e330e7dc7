"""A case with all that it takes to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweep.case.labels import Case
from sweep.schema import Settings


@dataclass(frozen=True)
class Planned:
    """A case, what composes it (overrides, --config-dir), and why it cannot run here, if so."""

    case: Case
    settings: Settings
    overrides: tuple[str, ...]
    unavailable: str | None = None
    config_dir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)  # hydra.job.env_set
