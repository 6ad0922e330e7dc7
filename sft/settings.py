"""The settings that shape a run's numbers: a checkpoint has them, and a resume has the same.

How a run is computed (layout, memory features, kernels, micro-batches) may be another, and so may
its length. What another value is wanted of on purpose is named in `resume.allow`.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sft.config import Config
from sft.errors import ConfigError

Settings = dict[str, Any]
SECTIONS = ("data", "model", "optim")
FREE = ("data.micro_batch", "data.packed", "model.attention", "model.linear_attention")
NOT_SHAPE = ("_name_or_path", "dtype", "torch_dtype", "transformers_version")
"""Keys of a model's configuration that say nothing of what it is."""


def shaping(config: Config, rows: str) -> Settings:
    """Name -> value; of a path what is there: the model's configuration, the digest of the rows."""
    known = asdict(config)
    flat = {f"{part}.{key}": x for part in SECTIONS for key, x in known[part].items()}
    shape = json.loads((Path(config.model.path) / "config.json").read_text(encoding="utf-8"))
    content = {
        "seed": config.seed,
        "model.path": {key: x for key, x in shape.items() if key not in NOT_SHAPE},
        "data.path": rows,  # last: it is another where the length of rows is, or the model
    }
    kept = {key: x for key, x in flat.items() if key not in (*FREE, *content)}
    return kept | content


def check(now: Settings, saved: Settings, allowed: list[str], place: Path) -> None:
    """Raise `ConfigError` for the first setting that is not as it was saved, nor allowed to be."""
    for name in allowed:
        if name not in now:
            near = difflib.get_close_matches(name, now, 1) or [", ".join(sorted(now))]
            raise ConfigError(f"resume.allow={name} is none of what is compared: {near[0]}")
    for name, value in now.items():
        if name not in allowed and saved.get(name) != value:
            raise ConfigError(
                f"{difference(name, value, saved.get(name), place)}; use the same, "
                f'or resume.allow=["{name}"]'
            )


def difference(name: str, now: Any, was: Any, place: Path) -> str:
    """What is not the same, in words."""
    if name == "data.path":
        return f"data.path makes other rows (documents, tokenizer, template) than {place} counts in"
    if isinstance(now, dict) and isinstance(was, dict):
        key = min(key for key in now.keys() | was.keys() if now.get(key) != was.get(key))
        return f"model.path has {key}={now.get(key)} but {place} was saved with {was.get(key)}"
    return f"{name}={now} but {place} was saved with {was}"
