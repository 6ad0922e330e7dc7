"""A suite that draws its cases: a covering array of settings, dealt over seeds.

The array has every pair of values of every two settings. It is the same whatever the seed, and the
seed says where in it to begin: so many seeds in a row as the array has parts meet every pair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from sweep.case.planned import Planned
from sweep.errors import RequestError

CASES = 20
"""Of a part, unless `cases=` says another number."""
ARRAYS = 2
"""A pair may stand in a case that cannot run; the second array has it in another one."""


def rows(draws: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The array as rows of a suite, each named by its number: `variant: draw_17`."""
    from covertable import make  # other suites have no need of it

    named = {key: list(values) for key, values in draws.items()}
    arrays = (make(named, strength=2, salt=str(salt)) for salt in range(ARRAYS))
    return [
        {**{key: drawn[key] for key in named}, "variant": f"draw_{number}"}
        for number, drawn in enumerate(chain.from_iterable(arrays))
    ]


def dealt(
    array: Sequence[list[str]],
    planned: Callable[[Sequence[list[str]]], Sequence[Planned]],
    seed: int,
    count: int | None,
) -> list[Planned]:
    """The part that a seed has, of cases that can run here: those that cannot are passed over.

    `planned` composes combinations of the array. Raises RequestError for a count below 1.
    """
    count = CASES if count is None else count
    if count < 1:
        raise RequestError(f"cases={count}: of a suite that draws, say how many cases: 1 or more")
    able = (
        case
        for part in _parts(array, seed * count, count)
        for case in planned(part)
        if case.unavailable is None
    )
    return list(islice(able, count))


def _parts(array: Sequence[list[str]], start: int, count: int) -> Iterator[Sequence[list[str]]]:
    """Once around the array from a place on, so many combinations at a time."""
    start %= max(1, len(array))
    around = iter([*array[start:], *array[:start]])
    return iter(lambda: list(islice(around, count)), [])
