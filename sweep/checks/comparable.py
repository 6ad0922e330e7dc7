"""Which cases may be held against each other: the one rule of drift, parity, compare and baselines.

Two cases are comparable if their identity is the same: settings, checkpoint and data, except on the
axes that the caller frees. Their provenance (code, libraries, host, thresholds) may differ; that is
reported and forbids nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from sweep import provenance
from sweep.case.identity import digest, flat, is_under
from sweep.facts import Facts
from sweep.schema import Settings, TrainerConf, trainer_confs

PRODUCED = ("checkpoint", "data")
"""The axes that nobody asks for: what was built and read, known only once the case has run.

`data` among the axes is the data that were read, never the settings `data.seed` and the like.
"""

LABELS = {
    "trainer": "trainer.name", "arch": "arch.name", "layout": "layout", "feature": "feature.name",
    "scale": "scale.name", "device": "device", "dtype": "dtype", "seed": "seed", "steps": "steps",
    "fault": "fault",
}  # fmt: skip
"""A case's labels, each with the setting that it is of: known of facts of every version."""

NAMED = 4  # differences that a message names one by one
NONE = "none"
UNKNOWN = object()  # a setting of a case whose settings are not recorded
Axes = tuple[str, ...]


def unlike(before: Facts, now: Facts, free: Axes = ()) -> str:
    """Why two cases are not comparable: `optim.lr 0.0001 > 0.001`; empty if they are.

    `free` names settings, groups of settings, `checkpoint` or `data` that may differ.
    """
    return known_differences(before, now, free) or _unknown(before, now)


def known_differences(before: Facts, now: Facts, free: Axes = ()) -> str:
    """The same, where it is recorded how they differ; empty where nothing is known of it."""
    return _named(list(_differences(before, now, free)))


def known_by_tags(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The same, of two runs in a store of which one never ran and has no facts."""
    labels = [name for name in LABELS if name in before and name in now]
    return _named(
        [
            f"{LABELS[name]} {before[name]} > {now[name]}"
            for name in labels
            if before[name] != now[name]
        ]
    )


def moved(before: Facts, now: Facts) -> list[str]:
    """What of the provenance differs: `torch 2.12.0 > 2.13.0`; empty if nothing does."""
    return provenance.moved(before.environment, now.environment)


def tags(facts: Facts) -> dict[str, str]:
    """What a store keeps of the identity, to find comparable runs without reading their facts."""
    if facts.identity is None:
        return {}
    same = {"identity": digest(json.dumps(_settings(facts), sort_keys=True))}
    checkpoint = facts.identity.checkpoint
    return same | ({"checkpoint": checkpoint} if checkpoint else {})


def fits(tags_of_run: Mapping[str, str], tags_of_case: Mapping[str, str]) -> bool:
    """Whether a run in a store is of the same case and the same settings, by their tags."""
    pairs = ((tags_of_run.get(key), tags_of_case.get(key)) for key in ("case_id", "identity"))
    return all(value is not None and value == other for value, other in pairs)


def _named(differences: Sequence[str]) -> str:
    more = f" and {len(differences) - NAMED} more" if len(differences) > NAMED else ""
    return ", ".join(differences[:NAMED]) + more


def _differences(before: Facts, now: Facts, free: Axes) -> Iterator[str]:
    old, new = _settings(before), _settings(now)
    asked = tuple(axis for axis in free if axis not in PRODUCED)
    for key in dict.fromkeys([*old, *new]):
        a, b = (_value(version, key, other) for version, other in ((old, before), (new, now)))
        if a is not UNKNOWN and b is not UNKNOWN and a != b and not is_under(key, asked):
            yield f"{key} {_shown(a)} > {_shown(b)}"
    for key in PRODUCED:
        a, b = (getattr(facts.identity, key, None) for facts in (before, now))
        if key not in free and None not in (a, b) and a != b:
            yield f"{key} {a} > {b}"


def _settings(facts: Facts) -> dict[str, Any]:
    """By their names, those first that are labels."""
    labels = {setting: getattr(facts.case, label) for label, setting in LABELS.items()}
    return {**labels, **(facts.identity.settings if facts.identity else {}), **labels}


def _value(settings: Mapping[str, Any], key: str, facts: Facts) -> Any:
    """A setting's value; of one that came later its default, which is what there was before."""
    if key in settings:
        return settings[key]
    return _defaults(facts.case.trainer).get(key) if facts.identity else UNKNOWN


@cache
def _defaults(adapter: str) -> dict[str, Any]:
    conf = trainer_confs().get(adapter, TrainerConf)
    return flat(Settings(trainer=conf()))


def _unknown(before: Facts, now: Facts) -> str:
    """Why it cannot be said that the settings are the same; empty if it can.

    Within one sweep an id names every setting that varies, so equal labels are enough.
    """
    unknown = [facts.sweep_id for facts in (before, now) if facts.identity is None]
    is_one_sweep = before.sweep_id == now.sweep_id and len(unknown) == 2
    if not unknown or (is_one_sweep and before.case.variation == now.case.variation):
        return ""
    if is_one_sweep:
        return f"{before.case.variation or NONE} > {now.case.variation or NONE}"
    return f"settings unknown: sweep {unknown[0]} was recorded by an earlier version"


def _shown(value: Any) -> str:
    return NONE if value is None else str(value)
