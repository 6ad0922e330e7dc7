"""A log, by a regular expression whose named groups are a step's figures."""

from __future__ import annotations

import re

from sweep.errors import RequestError
from sweep.facts import Metrics
from sweep.schema import MetricsConf
from sweep.trainers.readers import rows

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def parse(text: str, conf: MetricsConf) -> Metrics:
    """The steps of the lines that the pattern is found in; other lines are the log's own."""
    metrics = Metrics()
    pattern = re.compile(conf.pattern or "")
    for number, line in enumerate(COLOURS.sub("", text).split("\n"), start=1):
        if match := pattern.search(line):
            words = {key: word.replace(",", "") for key, word in match.groupdict().items() if word}
            rows.add(metrics, rows.numbers(words, conf), conf, f"line {number}")
    return metrics


def check(conf: MetricsConf) -> None:
    """Raise RequestError for a pattern that is none, or that has no figures."""
    if conf.pattern is None:
        raise RequestError(
            "trainer.metrics.pattern: format=log needs one, as in "
            r"'step (?P<step>\d+) loss (?P<loss>\S+) grad_norm (?P<grad_norm>\S+)'"
        )
    try:
        groups = set(re.compile(conf.pattern).groupindex)
    except re.error as error:
        raise RequestError(f"trainer.metrics.pattern: {error}: {conf.pattern}") from None
    for name in ("step", "loss"):
        if conf.fields.get(name, name) not in groups:
            raise RequestError(f"trainer.metrics.pattern: no group (?P<{name}>...) in it")
