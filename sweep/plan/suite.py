"""Combinations of overrides: from the command line alone, or from a suite narrowed by it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override

from sweep.case.labels import Case
from sweep.errors import RequestError
from sweep.plan import spelled

# What a choice narrows in a row; of other keys it replaces the row's value.
NARROWED = ("arch", "layout", "feature", "trainer", "scale", "fault")
# These say nothing about a case.
OF_THE_SWEEP = (
    "suite", "cases", "shard", "resume_sweep", "rerun", "host_gone", "references", "plan", "detach",
    "locate", "notify", "notify_form", "notify_always",
)  # fmt: skip

SET_BY_US = ("sweep_id", "case_id", "gpus", "attempts")

Choices = dict[str, list[str]]  # key -> its values as override text


def choices(overrides: Sequence[Override]) -> Choices:
    """Key -> values, for the overrides of the command line that are about cases."""
    values_by_key: Choices = {}
    for override in overrides:
        key = override.get_key_element()
        if key in (*OF_THE_SWEEP, "outputs") and override.is_sweep_override():
            raise RequestError(f"{key}: one value, it is about the sweep as a whole")
        if key in SET_BY_US:
            raise RequestError(f"{key}: the sweep itself sets it; leave it out")
        if key not in OF_THE_SWEEP:
            pairs = BasicSweeper.split_arguments([override], None)[0]
            values_by_key[key] = [pair.partition("=")[2] for (pair,) in pairs]
    return values_by_key


def combinations(chosen: Choices, rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The product of the choices, or of each row of a suite as far as the choices allow it.

    Raises RequestError if the choices leave nothing of the suite.
    """
    if not rows:
        return _product(chosen)
    combined = [
        combination for row in rows for combination in _product(_narrowed(_row(row), chosen))
    ]
    if not combined:
        raise nothing(chosen)
    return combined


def nothing(chosen: Choices) -> RequestError:
    """The complaint that the choices leave nothing of the suite."""
    said = " ".join(f"{key}={','.join(chosen[key])}" for key in chosen if key in NARROWED)
    if not said:
        return RequestError("the suite has no case: a list in each of its rows is empty")
    return RequestError(f"nothing in the suite matches {said}; plan=true lists what is there")


def _narrowed(row: Choices, chosen: Choices) -> Choices:
    merged = {**row, **chosen}
    for key in NARROWED:
        if key in row and key in chosen:
            compared = _degrees if key == "layout" else meant
            wanted = {compared(value) for value in chosen[key]}
            merged[key] = [value for value in row[key] if compared(value) in wanted]
    return merged


def _degrees(layout: str) -> str:
    """A layout's name without ep, which a dense architecture changes; `is_chosen` sees it all."""
    return re.sub(r"_ep\d+", "", meant(layout))


def is_chosen(case: Case, overrides: Sequence[str], chosen: Choices) -> bool:
    """Whether a case of a suite has a layout that was chosen, by its file's name or by its id's."""
    if "layout" not in chosen:
        return True
    wanted = {meant(value) for value in chosen["layout"]}
    said = dict(override.split("=", 1) for override in overrides)
    return bool(wanted & {meant(case.layout), meant(said.get("layout", case.layout))})


@cache
def meant(text: str) -> str:
    """An override's value in comparable form: the same value can be escaped in several ways."""
    return repr(OverridesParser.create().parse_override(f"key={text}").value())


def _product(values: Choices) -> list[list[str]]:
    pairs = [[f"{key}={value}" for value in texts] for key, texts in values.items()]
    return [list(overrides) for overrides in itertools.product(*pairs)]


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
