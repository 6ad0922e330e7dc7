"""The nights as one self-contained page, which matrix.html links to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from sweep.history.case import CaseHistory, Place
from sweep.history.view import View, flaky, headline, nearest, rate, symbol
from sweep.report.html import templates
from sweep.report.looks import LOOKS
from sweep.report.svg import curves
from sweep.store.ending import HISTORY

if TYPE_CHECKING:
    from markupsafe import Markup

NAME = HISTORY
TEMPLATE = "history.html.jinja"


def page(view: View) -> str:
    """The whole page; what comes from a store or from git is escaped."""
    looks = [{**asdict(look), "name": verdict.value} for verdict, look in LOOKS.items()]
    return (
        templates(Path(__file__).parent)
        .get_template(TEMPLATE)
        .render(
            view=view,
            looks=looks,
            symbol=symbol,
            rate=rate,
            flaky=flaky,
            nearest=nearest,
            headline=headline,
            told=told,
            link=link,
            cls=_class,
            margins=_margins,
            seconds=_seconds,
        )
    )


def told(place: Place) -> str:
    """What a cell says when it is pointed at."""
    failing = f" ({', '.join(place.found.failing)})" if place.found and place.found.failing else ""
    return f"{place.night.sweep_id}: {place.verdict or 'not run'}{failing}"


def link(place: Place) -> str:
    """The page of that night, which lies in the folder next to this one's."""
    return _page_of(place.night.sweep_id)


@cache
def _page_of(sweep_id: str) -> str:
    return f"../{quote(sweep_id, safe='')}/matrix.html"


def _class(place: Place | None) -> str:
    return place.verdict if place else ""


def _margins(case: CaseHistory) -> list[tuple[str, Markup]]:
    """A small picture for each check, with its threshold."""
    pictures = []
    for trend in case.trends:
        said = f"{trend.check}: {trend.latest:.2g} times its threshold, closest {trend.closest:.2g}"
        points = list(enumerate(min(value, 2.0) for value in trend.values))
        pictures.append((said, curves({"own": points}, said, limit=1.0)))
    return pictures


def _seconds(case: CaseHistory) -> tuple[str, Markup]:
    values: Sequence[float] = case.seconds
    said = f"seconds: {values[-1]:.0f}, {min(values):.0f} to {max(values):.0f}"
    return said, curves({"own": list(enumerate(values))}, said)
