"""Names in the table of thresholds: under a name that nobody asks for a limit limits nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from sweep.checks import CHECKS, comparison, cost, export, oracle, resume, thresholds
from sweep.checks.thresholds import Table, Threshold
from sweep.errors import RequestError, unknown
from sweep.schema import Device, Dtype

GATES = ("exit", "finite", "alive")
"""Checks that always count: a case that fails one has trained nothing that could be judged."""

FIGURES: Mapping[str, Sequence[str]] = {
    "parity": comparison.LIMITED, "drift": comparison.LIMITED, "resume": resume.LIMITED,
    "oracle": oracle.LIMITED, "export": export.LIMITED, "cost": cost.LIMITED,
}  # fmt: skip
DEVICES = [device.value for device in Device if device is not Device.auto]
NEAR = 0.85  # as alike as two spellings of one word
DTYPES = [dtype.value for dtype in Dtype]


def check(table: Table, archs: Collection[str]) -> None:
    """Raise RequestError for the first unknown name, and for a gate that is advisory."""
    problem = next(_problems(table, archs), None)
    if problem:
        raise RequestError(f"conf/{thresholds.FILE}: {problem}")


def _problems(table: Table, archs: Collection[str]) -> Iterator[str]:
    for name in [*table.thresholds, *table.advisory]:
        if name not in CHECKS:
            yield unknown("check", name, CHECKS)
    if gates := [name for name in table.advisory if name in GATES]:
        yield (
            f"advisory: {', '.join(gates)} cannot be: a case that fails there has trained nothing"
            " to judge; an expected failure is an entry of known_failures.yaml"
        )
    for name, figures in table.thresholds.items():
        for figure, devices in figures.items():
            yield from _in_figure(name, figure, devices, archs)


def _in_figure(
    name: str, figure: str, devices: Mapping[str, Mapping[str, Threshold]], archs: Collection[str]
) -> Iterator[str]:
    where = f"{name}.{figure}"
    if not _is_figure(name, figure):
        yield f"{name}: {unknown('figure', figure, FIGURES.get(name, ()))}"
    for device, dtypes in devices.items():
        if device not in DEVICES:
            yield f"{where}: {unknown('device', device, DEVICES)}"
        for dtype, threshold in dtypes.items():
            if dtype not in DTYPES:
                yield f"{where}.{device}: {unknown('dtype', dtype, DTYPES)}"
            for arch in threshold.arch:
                if arch not in archs:
                    yield f"{where}.{device}.{dtype}: {unknown('arch', arch, archs)}"


def _is_figure(name: str, figure: str) -> bool:
    """Whether the check has it; a trainer may have groups of its own, but no misspelt ones."""
    known = FIGURES.get(name, ())
    group = figure.removeprefix(comparison.GROUP)
    is_own = f"{comparison.GROUP}norm" in known and group != figure
    return figure in known or (
        is_own and not get_close_matches(group, comparison.GROUPS, cutoff=NEAR)
    )
