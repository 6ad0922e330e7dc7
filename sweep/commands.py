"""Command lines that are printed for a person: they run as they are, where they are read."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from sweep.files import config_dir_of, own_conf_dir


def spelled(module: str, words: Iterable[str], config_dir: str | None = None) -> str:
    """`python -m module words`, quoted, with the folder of one's own that this command has."""
    own = own_conf_dir() if config_dir is None else config_dir
    more = [] if own is None else ["--config-dir", str(own)]
    return shlex.join(["python", "-m", module, *more, *words])


def of_launcher(argv: Iterable[str]) -> list[str]:
    """The words of a sweep's command line that say how its jobs are started, not what they run."""
    _, rest = config_dir_of(list(argv))
    return [word for word in rest if word.startswith(("hydra/launcher=", "hydra.launcher."))]
