"""Text with placeholders, as a trainer's words, files and environment are written in YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from sweep.case.labels import layout_name, plain
from sweep.errors import RequestError
from sweep.schema import FeatureConf, Settings
from sweep.trainers.base import Launch, exports_at, python_of, saves_at

# One pass, so that nothing in a value is taken for a placeholder; {{word}} stands for {word}.
PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}|\{([a-z_]+)\}")
# Each key of a feature file that is not about steps or data: what a trainer may be unable to do.
SWITCHES = tuple(
    field.name
    for field in fields(FeatureConf)
    if field.name not in ("name", "compile_backend", "packed", "resume_at", "min_steps")
)
Spelling = Mapping[str, Mapping[Any, Any]]


def fill(text: str, values: Mapping[str, str], where: str) -> str:
    """`text` with {name} replaced; raises RequestError, naming `where`, if there is no such name.

    Only lower-case words in braces are placeholders: JSON, TOML and shell code pass unchanged.
    """

    def value(match: re.Match[str]) -> str:
        escaped, name = match.groups()
        if escaped is not None:
            return "{" + escaped + "}"
        if name not in values:
            raise RequestError(
                f"{where}: {{{name}}} is no placeholder; write {{{{{name}}}}} for the text itself, "
                f"or one of {', '.join(values)}"
            )
        return values[name]

    return PLACEHOLDER.sub(value, text)


def uses(text: str, name: str) -> bool:
    """Whether the placeholder is in `text`."""
    return any(match[2] == name for match in PLACEHOLDER.finditer(text))


def values_of(
    settings: Settings, launch: Launch, directory: Path, model: Path | None, checkpoint: str = ""
) -> dict[str, str]:
    """Every placeholder's value; what a case has none of (`resume_from`, say) is empty."""
    case, layout = plain(settings), settings.layout
    known: dict[str, Any] = {
        "python": python_of(settings),
        "output_dir": directory,
        "model": model,
        "launch": launch.name,
        "arch": settings.arch.name,
        "layout": layout_name(layout),
        "feature": settings.feature.name,
        "scale": settings.scale.name,
        "device": case["device"],
        "dtype": case["dtype"],
        "seed": settings.seed,
        "world_size": layout.world_size,
        "nodes": layout.nodes,
        "ranks_per_node": layout.ranks_per_node,
        "dp_shard": layout.dp_shard,
        "cp": layout.cp,
        "ep": layout.ep,
        "steps": settings.steps,
        "first_step": launch.first_step,
        "save_at": saves_at(settings, launch),
        "export_at": exports_at(settings, launch),
        "resume_from": checkpoint,
        **case["optim"],
        **{key: case["data"][key] for key in ("seq_len", "global_batch", "micro_batch")},
        "data_seed": settings.data.seed,
        "accumulation": accumulation(settings),
        **{key: case["feature"][key] for key in (*SWITCHES, "compile_backend", "packed")},
        "attention_dropout": settings.attention_dropout,
        "fault": settings.fault,
        "profile_step": settings.profile_step,
    }
    return {key: text(value) for key, value in known.items()}


def accumulation(settings: Settings) -> int:
    """Micro-batches of a rank's data-parallel group in one optimizer step; at least 1."""
    data = settings.data
    return max(1, data.global_batch // (data.micro_batch * settings.layout.dp_shard))


def spelled(values: Mapping[str, str], spelling: Spelling) -> dict[str, str]:
    """`values` in the trainer's own words: spelling[name][value]; raises RequestError."""
    for name in spelling:
        if name not in values:
            raise RequestError(
                f"trainer.spelling.{name}: no such placeholder; one of {', '.join(values)}"
            )
    words = {
        name: {text(ours): text(theirs) for ours, theirs in said.items()}
        for name, said in spelling.items()
    }
    return {name: words.get(name, {}).get(value, value) for name, value in values.items()}


def text(value: Any) -> str:
    """As JSON, TOML and YAML spell it: true and false in lower case, nothing for none."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
