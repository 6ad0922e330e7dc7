"""What people look at: a table and a plot of all deltas on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.calibrate.rule import FACTOR, Population
from sweep.report.markdown import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAGE, PLOT = "calibration.md", "calibration.png"
CORRECT, BROKEN, LINE = "#0072b2", "#d55e00", "#000000"  # Okabe and Ito's
HEAD = ("figure", "correct", "at most", "broken", "at least", "the weakest", "apart", "threshold")
DELTAS = ("figure", "case", "delta")
INTRODUCTION = """\
# Calibration: correct and broken runs, and the thresholds between

Made by `python -m sweep.calibrate` from sweep {sweep}, {versions}. A threshold is the geometric
mean of the largest correct and the smallest broken delta; less than a factor of {factor:g} apart,
there is none. Deltas of `resume` are absolute, those of `parity` relative; `choices` counts places
of the batch. Where correct runs are equal to the last bit, one unit in the last place of float32 (a
place, where they are counted) stands for their delta. A case counts by its farthest step, and for
`mean` by the signed mean over the steps.

![all deltas]({plot})

{table}

## Every delta

{deltas}
"""


def page(found: Sequence[Population], sweep: str, versions: Mapping[str, str]) -> str:
    """The page, in Markdown."""
    said = ", ".join(f"{name} {version}" for name, version in versions.items())
    return INTRODUCTION.format(
        sweep=sweep,
        versions=said,
        factor=FACTOR,
        plot=PLOT,
        table="\n".join(table(HEAD, map(_row, found))),
        deltas="\n".join(
            table(("figure", "case", "delta"), chain.from_iterable(map(_deltas, found)))
        ),
    )


def _row(one: Population) -> list[str]:
    counts = str(len(one.correct)), str(len(one.broken))
    if not one.correct or not one.broken:
        return [one.name, counts[0], "", counts[1], "", "", "", one.refusal]
    threshold = "none: too close" if one.threshold is None else f"{one.threshold:.1e}"
    return [one.name, counts[0], f"{one.largest_correct:.1e}", counts[1],
            f"{one.weakest.value:.1e}", f"`{one.weakest.fault}` in {one.weakest.case}",
            f"{one.separation:.0f} times", threshold]  # fmt: skip


def _deltas(one: Population) -> list[list[str]]:
    ordered = sorted((*one.correct, *one.broken), key=lambda delta: delta.value)
    return [[one.name, delta.case, f"{delta.value:.1e}"] for delta in ordered]


def draw(found: Sequence[Population], path: Path) -> None:
    """A row for each figure: correct deltas, broken ones, and the threshold between them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 1.2 + 0.75 * len(found)), dpi=110)
    canvas = FigureCanvasAgg(figure)
    axes: Axes = figure.subplots()
    for row, one in enumerate(found):
        _draw(axes, one, len(found) - 1 - row)
    axes.set_xscale("log")
    axes.set_ylim(-0.6, len(found) - 0.3)
    axes.set_yticks(range(len(found)), [_label(one) for one in reversed(found)])
    axes.set_xlabel("largest difference over the steps, or size of its mean")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # each once
    axes.legend(named.values(), named.keys(), loc="lower right", bbox_to_anchor=(1.0, 1.0),
                ncols=4, fontsize=8, frameon=False)  # fmt: skip
    figure.tight_layout()
    canvas.print_png(path)


def _label(one: Population) -> str:
    """Beside a row of the plot: `parity, float32`, and below it `loss, mean`."""
    return f"{one.check}, {one.dtype}\n{one.figure}{', mean' if one.is_mean else ''}"


def _draw(axes: Axes, one: Population, height: int) -> None:
    zeros = [delta for delta in one.correct if delta.value < one.floor]
    seen = [delta.value for delta in one.correct if delta.value >= one.floor]
    axes.plot(seen, [height + 0.12] * len(seen), "o", color=CORRECT,
              label="correct")  # fmt: skip
    axes.plot([one.floor] * len(zeros), [height + 0.12] * len(zeros), "<", mfc="none",
              color=CORRECT, label="correct, too small to see")  # fmt: skip
    values = [delta.value for delta in one.broken if delta.value > 0]
    axes.plot(values, [height - 0.12] * len(values), "x", color=BROKEN,
              label="broken")  # fmt: skip
    if one.threshold is not None:
        axes.plot([one.threshold] * 2, [height - 0.35, height + 0.35], color=LINE,
                  label="threshold")  # fmt: skip
        axes.annotate(f"{one.threshold:.1e}", (one.threshold, height + 0.37), fontsize=8,
                      ha="center")  # fmt: skip
