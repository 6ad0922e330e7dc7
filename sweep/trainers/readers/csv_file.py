"""A table with a header; its columns hold numbers."""

from __future__ import annotations

import csv

from sweep.facts import Metrics
from sweep.schema import MetricsConf
from sweep.trainers.readers import rows


def parse(text: str, conf: MetricsConf) -> Metrics:
    """The steps of the table; a row with more or fewer cells than the header is a bad line."""
    metrics = Metrics()
    reader = csv.reader(text.replace("\0", "\ufffd").splitlines())
    header: list[str] | None = None
    try:
        for cells in reader:
            if header is None:
                header = [name.strip() for name in cells]
                continue
            place = f"line {reader.line_num}"
            if cells and len(cells) != len(header):
                said = f"{len(cells)} cells under {len(header)} names: {','.join(cells)[:80]}"
                metrics.bad_lines.append(f"{place}: {said}")
            elif cells:
                named = {name: cell for name, cell in zip(header, cells, strict=True) if cell}
                rows.add(metrics, rows.numbers(named, conf), conf, place)
    except csv.Error as error:
        metrics.bad_lines.append(f"line {reader.line_num}: {error}")
    return metrics
