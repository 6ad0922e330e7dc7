"""Converts a trainer's row to a Step, or records it as a bad line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sweep.errors import reason
from sweep.facts import Metrics, Step
from sweep.schema import MetricsConf

_MISSING = object()
MOST = 20_000
SURPLUS = f"more than {MOST} steps: the rest is not read"
WHOLE = ("step", "tokens")  # counts, also where a format knows floats alone
DIGESTS = ("global_batch_digest", "buffers_digest")


def add(metrics: Metrics, row: Mapping[str, Any], conf: MetricsConf, place: str) -> None:
    """Append the row to `metrics` as a step, or as a bad line that names `place`.

    No more steps than MOST: a trainer that goes wild takes neither our memory nor hours.
    """
    if len(metrics.steps) >= MOST:
        if SURPLUS not in metrics.bad_lines[-1:]:
            metrics.bad_lines.append(SURPLUS)
        return
    try:
        metrics.steps.append(Step.model_validate(_renamed(row, conf)))
    except ValidationError as error:
        metrics.bad_lines.append(f"{place}: {reason(error)}: {str(dict(row))[:80]}")


def numbers(words: Mapping[str, str], conf: MetricsConf) -> dict[str, Any]:
    """Each word as the number that it spells, but digests, which are words also if all digits."""
    kept = {conf.fields.get(name, name) for name in DIGESTS}
    return {key: word if key in kept else _number(word) for key, word in words.items()}


def _number(word: str) -> Any:
    """Also nan and inf; a word that spells none as it is."""
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _renamed(row: Mapping[str, Any], conf: MetricsConf) -> dict[str, Any]:
    """Ours: what `fields` names, and whatever else the row has."""
    taken = set(conf.fields.values())
    step = {key: value for key, value in row.items() if key not in taken}
    for ours, theirs in conf.fields.items():
        if (value := _found(row, theirs)) is not _MISSING:
            _put(step, ours, value)
    for key in WHOLE:
        if isinstance(value := step.get(key), float) and value.is_integer():
            step[key] = int(value)
    if type(step.get("step")) is int:
        step["step"] += 1 - conf.first_step
    return step


def _found(row: Mapping[str, Any], name: str) -> Any:
    """row["a.b"], or row["a"]["b"]."""
    if name in row:
        return row[name]
    head, dot, rest = name.partition(".")
    inner = row.get(head)
    return _found(inner, rest) if dot and isinstance(inner, Mapping) else _MISSING


def _put(step: dict[str, Any], name: str, value: Any) -> None:
    """`counters.x` goes into the counters."""
    head, dot, rest = name.partition(".")
    if not dot:
        step[name] = value
        return
    inner = step.get(head)
    step[head] = {**(inner if isinstance(inner, Mapping) else {}), rest: value}
