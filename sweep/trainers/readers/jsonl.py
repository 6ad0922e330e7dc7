"""A JSON object a line. Where several lines tell of one step, `merge` puts them together."""

from __future__ import annotations

import json
from typing import Any

from sweep.facts import Metrics
from sweep.schema import MetricsConf
from sweep.trainers.readers import rows


def parse(text: str, conf: MetricsConf) -> Metrics:
    """The steps of the text, whatever else is in it."""
    metrics = Metrics()
    found: list[tuple[str, dict[str, Any]]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append((f"line {number}", _row(line)))
        except ValueError as error:
            metrics.bad_lines.append(f"line {number}: {error}: {line.strip()[:80]}")
    for place, row in _merged(found, conf) if conf.merge else found:
        rows.add(metrics, row, conf, place)
    return metrics


def _row(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"Invalid JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError("no JSON object")
    return row


def _merged(
    rows: list[tuple[str, dict[str, Any]]], conf: MetricsConf
) -> list[tuple[str, dict[str, Any]]]:
    """One row a step; lines without `merge` (the name of a figure that a step has) are no step."""
    key = conf.fields.get("step", "step")
    together: dict[Any, tuple[str, dict[str, Any]]] = {}
    for place, row in rows:
        first, before = together.get(str(row.get(key)), (place, {}))
        together[str(row.get(key))] = (first, before | row)
    return [placed for placed in together.values() if conf.merge in placed[1]]
