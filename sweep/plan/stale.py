"""Entries of known failures and graph breaks that name no case: of a suite, or of this sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from fnmatch import filter as matching
from pathlib import Path
from typing import Any

from sweep import conf_file
from sweep.case.labels import fault_suffix, layout_name
from sweep.case.planned import Planned
from sweep.checks import known_breaks
from sweep.conf_file import OfCases
from sweep.errors import RequestError
from sweep.files import ConfDirs
from sweep.judge import known_failures
from sweep.plan import suite
from sweep.plan.cases import suffix, varying_keys
from sweep.schema import LayoutConf

Values = Mapping[str, Any]


def unmatched(planned: Sequence[Planned], conf: ConfDirs) -> list[str]:
    """A line for each such entry."""
    entries: list[OfCases] = [*known_failures.entries(conf), *known_breaks.entries(conf)]
    if not entries:
        return []
    ids = [*(case.case.id for case in planned), *case_ids(conf)]
    trainers = [
        *(case.case.trainer for case in planned),
        *(str(values.get("name", stem)) for stem, values in _confs(conf, "trainer").items()),
    ]
    stale = [
        entry
        for entry in entries
        if not matching(ids, entry.case) or not matching(trainers, entry.trainer)
    ]
    return [
        f"{entry.place}: no case of any suite is {entry.case} with trainer {entry.trainer}:"
        " correct or delete the entry"
        for entry in stale
    ]


def case_ids(conf: ConfDirs) -> Iterator[str]:
    """The ids of the cases of all suites, from their files: composing them would take minutes."""
    archs, layouts = _confs(conf, "arch"), _confs(conf, "layout")
    for chosen in _confs(conf, "suite").values():
        combinations = suite.combinations({}, chosen.get("rows") or [])
        varying = varying_keys(combinations)
        for overrides in combinations:
            values = dict(override.split("=", 1) for override in overrides)
            arch, layout = archs.get(values.get("arch", "")), layouts.get(values.get("layout", ""))
            if arch and layout:
                yield _id(values, arch, layout) + suffix(overrides, varying)


def _id(values: Mapping[str, str], arch: Values, layout: Values) -> str:
    keys = [field.name for field in fields(LayoutConf)]
    degrees = {key: layout[key] for key in keys if key in layout}
    ep = degrees["ep"] if arch.get("moe") else 1
    fault = values.get("fault", "null").strip("'")
    planted = "" if fault == "null" else fault_suffix(fault)
    name = layout_name(LayoutConf(**{**degrees, "ep": ep}))
    return f"{values['arch']}-{name}-{values.get('feature', 'base')}{planted}"


def _confs(conf: ConfDirs, group: str) -> dict[str, Values]:
    """Name -> what its file says; of one that cannot be read, nothing: composing it complains."""
    return {path.stem: _read(path) for path in conf.files_of(group)}


def _read(path: Path) -> Values:
    try:
        values = conf_file.read(path)
    except RequestError:
        return {}
    return values if isinstance(values, dict) else {}
