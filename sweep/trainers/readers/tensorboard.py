"""TensorBoard's event files, in a folder or below it; needs the package `tensorboard`."""

from __future__ import annotations

from collections import defaultdict
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sweep.errors import RequestError
from sweep.facts import Metrics
from sweep.schema import MetricsConf
from sweep.trainers.readers import rows

EVENTS = "events.out.tfevents*"
Stamp = tuple[tuple[str, int], ...]


def read(path: Path, conf: MetricsConf) -> Metrics:
    """The steps that have a loss; `conf.fields` maps our names to the scalars' tags."""
    metrics = Metrics()
    loss = conf.fields.get("loss", "loss")
    for number, row in sorted(_scalars(_stamp(path)).items()):
        if loss in row:
            rows.add(metrics, {"step": number, **row}, conf, f"step {number}")
    return metrics


def check(conf: MetricsConf) -> None:
    """Raise RequestError where event files cannot be read."""
    if find_spec("tensorboard") is None:
        raise RequestError(
            "trainer.metrics.format=tensorboard needs a package: pip install tensorboard"
        )
    if "step" in conf.fields:
        raise RequestError("trainer.metrics.fields.step: an event file numbers its steps itself")


def _stamp(path: Path) -> Stamp:
    """The event files, with their sizes: what was read of them is read once."""
    files = path.rglob(EVENTS) if path.is_dir() else [path]
    return tuple(sorted((str(file), file.stat().st_size) for file in files))


@lru_cache(maxsize=16)
def _scalars(stamp: Stamp) -> dict[int, dict[str, Any]]:
    """Step -> tag -> value."""
    if not stamp:
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    steps: defaultdict[int, dict[str, Any]] = defaultdict(dict)
    for name, _size in stamp:
        events = EventAccumulator(name, size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        tags = events.Tags()
        for tag in tags["scalars"]:
            for event in events.Scalars(tag):
                steps[event.step][tag] = event.value
    return dict(steps)
