"""Command lines that are printed for a person: they run as they are, where they are read."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from sweep.files import config_dir_of


def spelled(module: str, words: Iterable[str], config_dir: str | None = None) -> str:
    """`python -m module words`, quoted; `config_dir`: the user's folder of configuration."""
    more = [] if config_dir is None else ["--config-dir", config_dir]
    return shlex.join(["python", "-m", module, *more, *words])


def of_launcher(argv: Iterable[str]) -> list[str]:
    """The words of a sweep's command line that say how its jobs are started, not what they run."""
    _, rest = config_dir_of(list(argv))
    return [word for word in rest if word.startswith(("hydra/launcher=", "hydra.launcher."))]
