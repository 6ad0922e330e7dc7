"""The matrix as one self-contained HTML page: no script, no other file, no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.case.labels import Case
from sweep.report.looks import LOOKS
from sweep.report.matrix import NOT_RUN, Matrix, file_link, matrix
from sweep.report.past import NO_PAST, Past
from sweep.report.pictures import pictures
from sweep.report.result import Result, curves_address, short

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATE = "matrix.html.jinja"
VERSIONS = ("torch", "transformers", "trainer-sweep", "git_sha", "python", "device", "host")


@cache
def templates(*folders: Path) -> Environment:
    """Our templates, and those in other folders, compiled once; what they are given is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([*folders, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = short
    return environment


def page(
    sweep_id: str,
    results: Sequence[Result],
    missing: Sequence[Case] = (),
    about: Mapping[str, str] | None = None,
    past: Past = NO_PAST,
    spared: str = "",
) -> str:
    """The whole page; text from trainers and configuration is escaped."""
    environment = templates()
    whole = matrix(results, missing)
    against = [result for result in results if result.message]
    anchors = {result.case.id: f"case-{number}" for number, result in enumerate(against, start=1)}
    return environment.get_template(TEMPLATE).render(
        sweep_id=sweep_id,
        matrix=whole,
        date=_date(results),
        versions=_versions(results, about),
        looks=_looks(whole, spared),
        looks_of=lambda result: LOOKS[result.judgement.verdict],
        link=file_link,
        served=_served(results),
        anchors=anchors,
        curves=lambda result: curves_address(result, results),
        name=_worst,
        past=past,
        pictures=lambda result: pictures(result, results),
        against=against,
    )


def _looks(whole: Matrix, spared: str) -> list[dict[str, Any]]:
    """Each verdict's symbol and colours, its CSS class, and its number of cases."""
    looks = [
        {**asdict(look), "word": verdict.value, "name": verdict.value}
        for verdict, look in LOOKS.items()
    ]
    rest = {
        "symbol": "·",
        "meaning": f"spared: {spared}" if spared else "planned, and without a result",
        "light": "#ffffff",
        "dark": "#14171a",
        "word": NOT_RUN,
        "name": _worst([NOT_RUN]),
    }
    return [{**look, "count": whole.words.get(look["word"], 0)} for look in [*looks, rest]]


def _worst(words: Sequence[str]) -> str:
    """The CSS class of a place: the worst of its verdicts."""
    order = [*(verdict.value for verdict in LOOKS), NOT_RUN]
    return min(words, key=order.index).replace(" ", "_")


def _served(results: Sequence[Result]) -> bool:
    """Whether links lead to an MLflow server."""
    return any(result.in_mlflow and result.in_mlflow.address for result in results)


def _date(results: Sequence[Result]) -> str:
    started = [result.facts.started for result in results if result.facts]
    if not started:
        return "nothing ran"
    return datetime.fromtimestamp(min(started), UTC).strftime("%Y-%m-%d %H:%M UTC")


def _versions(results: Sequence[Result], about: Mapping[str, str] | None) -> dict[str, str]:
    """What the cases ran with; several values if a sweep was resumed under other versions."""
    sources = [about or {}, *(result.facts.environment for result in results if result.facts)]
    seen = {
        name: dict.fromkeys(source[name] for source in sources if name in source)
        for name in VERSIONS
    }
    return {
        name: ", ".join(value[:12] if name == "git_sha" else value for value in values)
        for name, values in seen.items()
        if values
    }
