"""The command line's choices, and a suite's rows narrowed by them -> combinations to compose."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from sweep.errors import RequestError
from sweep.plan import spelled

# What a choice narrows in a row; of other keys it replaces the row's value.
NARROWED = ("arch", "layout", "feature", "trainer", "scale", "fault")
# These say nothing about a case.
OF_THE_SWEEP = ("suite", "shard", "resume_sweep", "rerun", "references", "plan", "detach")

SET_BY_US = ("sweep_id", "case_id", "gpus")

Choices = dict[str, list[str]]  # key -> its values as override text


def choices(overrides: Sequence[Override]) -> Choices:
    """What the command line says of the cases, each key with all its values."""
    found: Choices = {}
    for override in overrides:
        key = override.get_key_element()
        if key in OF_THE_SWEEP and override.is_sweep_override():
            raise RequestError(f"{key}: one value, it is about the sweep as a whole")
        if key in SET_BY_US:
            raise RequestError(f"{key}: the sweep itself sets it; leave it out")
        if key not in OF_THE_SWEEP:
            pairs = BasicSweeper.split_arguments([override], None)[0]
            found[key] = [pair.partition("=")[2] for (pair,) in pairs]
    return found


def combinations(chosen: Choices, rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The product of the choices, or of each row of a suite as far as the choices allow it.

    Raises RequestError if the choices leave nothing of the suite.
    """
    if not rows:
        return _product(chosen)
    found = [one for row in rows for one in _product(_narrowed(_row(row), chosen))]
    if not found:
        said = " ".join(f"{key}={','.join(chosen[key])}" for key in chosen if key in NARROWED)
        if not said:
            raise RequestError("the suite has no case: a list in each of its rows is empty")
        raise RequestError(f"nothing in the suite matches {said}; plan=true lists what is there")
    return found


def _narrowed(row: Choices, chosen: Choices) -> Choices:
    merged = {**row, **chosen}
    for key in NARROWED:
        if key in row and key in chosen:
            wanted = {meant(value) for value in chosen[key]}
            merged[key] = [value for value in row[key] if meant(value) in wanted]
    return merged


@cache
def meant(text: str) -> str:
    """The value that an override's text stands for: Hydra writes a colon with a backslash."""
    return repr(OverridesParser.create().parse_override(f"key={text}").value())


def _product(values: Choices) -> list[list[str]]:
    pairs = [[f"{key}={value}" for value in found] for key, found in values.items()]
    return [list(one) for one in itertools.product(*pairs)]


def _row(row: Mapping[str, Any]) -> Choices:
    return {
        key: [_text(item) for item in (value if isinstance(value, list) else [value])]
        for key, value in row.items()
    }


def _text(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return spelled(str(value))
