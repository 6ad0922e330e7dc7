"""A few curves as one small inline SVG, for a page that is one file without a script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

Points = Sequence[tuple[float, float | None]]  # x, y; None or no number: a gap
WIDTH, HEIGHT, EDGE = 220, 60, 3


def curves(
    lines: Mapping[str, Points],
    said: str,
    limit: float | None = None,
    width: int = WIDTH,
    height: int = HEIGHT,
) -> Markup:
    """Each line by its CSS class, later ones on top; `said` for who cannot see it.

    With `limit`, a threshold is drawn at that height.
    """
    from markupsafe import Markup, escape

    drawn = {name: _segments(points) for name, points in lines.items()}
    place = _scale(drawn, limit, width, height)
    parts = [
        f'<polyline class="{escape(name)}" points="{" ".join(place(x, y) for x, y in segment)}"/>'
        for name, segments in drawn.items()
        for segment in segments
    ]
    if limit is not None:
        start, end = place(-math.inf, limit), place(math.inf, limit)
        (x1, y1), (x2, y2) = start.split(","), end.split(",")
        parts.append(f'<line class="limit" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>')
    return Markup(  # numbers, and what is escaped
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img"'
        f' aria-label="{escape(said)}">{"".join(parts)}</svg>'
    )


Segment = list[tuple[float, float]]


def _segments(points: Points) -> list[Segment]:
    """The parts between gaps; a point that stands alone becomes a short dash."""
    return list(_split(points))


def _split(points: Points) -> Iterator[Segment]:
    part: Segment = []
    for x, y in [*points, (0.0, None)]:
        if y is not None and math.isfinite(y):
            part.append((x, y))
        elif part:
            yield part if len(part) > 1 else [part[0], (part[0][0] + 0.1, part[0][1])]
            part = []


class _scale:  # noqa: N801  # a function with what it keeps
    """Places a point in the picture as `x,y`."""

    def __init__(
        self, drawn: Mapping[str, list[Segment]], limit: float | None, width: int, height: int
    ) -> None:
        points = [point for segments in drawn.values() for segment in segments for point in segment]
        xs, ys = [x for x, _ in points] or [0.0], [y for _, y in points] or [0.0]
        ys += [] if limit is None else [limit]
        self._x, self._y = (min(xs), max(xs)), (min(ys), max(ys))
        self._size = width, height

    def __call__(self, x: float, y: float) -> str:
        width, height = self._size
        across = _share(x, self._x) * (width - 2 * EDGE) + EDGE
        down = height - EDGE - _share(y, self._y) * (height - 2 * EDGE)
        return f"{across:.1f},{down:.1f}"


def _share(value: float, ends: tuple[float, float]) -> float:
    """Where it lies between the ends, 0 to 1; the middle where they are one."""
    low, high = ends
    if not math.isfinite(value):
        return 0.0 if value < 0 else 1.0
    if high == low:
        return 0.5
    return (value / 2 - low / 2) / (high / 2 - low / 2)  # halves: the whole may be infinite
