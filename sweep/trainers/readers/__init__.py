"""Readers of what trainers write: each turns a format into the same steps and bad lines."""

from __future__ import annotations

import os
from pathlib import Path

from sweep.errors import RequestError
from sweep.facts import Metrics
from sweep.schema import MetricsConf, MetricsFormat
from sweep.trainers.readers import csv_file, jsonl, log, tensorboard

PATHS = {
    MetricsFormat.jsonl: "metrics.jsonl",
    MetricsFormat.csv: "metrics.csv",
    MetricsFormat.tensorboard: ".",
    MetricsFormat.log: "launcher.log",
}
PARSERS = {
    MetricsFormat.jsonl: jsonl.parse,
    MetricsFormat.csv: csv_file.parse,
    MetricsFormat.log: log.parse,
}
END_BYTES = 1 << 16  # of a file, for whoever only looks how far a launch is


def read(conf: MetricsConf, directory: Path) -> Metrics:
    """The steps that the files matching `conf.path` in the launch's `directory` hold so far."""
    metrics = Metrics()
    for path in _paths(conf, directory):
        found = _read(path, conf)
        metrics.steps += found.steps
        metrics.bad_lines += found.bad_lines
    return metrics


def last_step(conf: MetricsConf, directory: Path) -> int:
    """The last step reported so far, from the ends of the files alone; 0 if none is found there.

    For whoever only looks how far a launch is: a file of 20,000 steps is not read again and again.
    """
    ends = [_read_end(path, conf) for path in _paths(conf, directory)]
    return max((step.step for end in ends for step in end.steps), default=0)


def _read_end(path: Path, conf: MetricsConf) -> Metrics:
    if conf.format is MetricsFormat.tensorboard or path.stat().st_size <= END_BYTES:
        return _read(path, conf)
    with path.open("rb") as file:
        head = file.readline() if conf.format is MetricsFormat.csv else b""
        file.seek(-END_BYTES, os.SEEK_END)
        file.readline()  # begun before the part that is read
        return PARSERS[conf.format]((head + file.read()).decode("utf-8", "replace"), conf)


def _read(path: Path, conf: MetricsConf) -> Metrics:
    """One file. What cannot be read is a bad line: it concerns this case and no other."""
    try:
        if conf.format is MetricsFormat.tensorboard:
            return tensorboard.read(path, conf)
        return PARSERS[conf.format](path.read_text(encoding="utf-8", errors="replace"), conf)
    except Exception as error:  # noqa: BLE001  # a library raises what it likes on a damaged file
        said = " ".join(str(error).split())[:300]
        return Metrics(bad_lines=[f"{path.name} cannot be read: {type(error).__name__}: {said}"])


def _paths(conf: MetricsConf, directory: Path) -> list[Path]:
    pattern = conf.path or PATHS[conf.format]
    if conf.format is MetricsFormat.tensorboard:
        return [directory] if pattern == "." else sorted(directory.glob(pattern))
    return sorted(path for path in directory.glob(pattern) if path.is_file())


def check(conf: MetricsConf) -> None:
    """Raise RequestError if nothing can be read like this: said while planning."""
    path = conf.path or PATHS[conf.format]
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise RequestError(f"trainer.metrics.path={path}: say it relative to the launch's folder")
    if conf.format is MetricsFormat.log:
        log.check(conf)
    elif conf.pattern is not None:
        raise RequestError(f"trainer.metrics.pattern is for format=log, not {conf.format.value}")
    if conf.format is MetricsFormat.tensorboard:
        tensorboard.check(conf)
