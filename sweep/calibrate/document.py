"""The calibration as a Markdown page, and a plot of all deltas on a logarithmic axis."""

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


def page(measured: Sequence[Population], sweep: str, versions: Mapping[str, str]) -> str:
    """The page, in Markdown."""
    libraries = ", ".join(f"{name} {version}" for name, version in versions.items())
    return INTRODUCTION.format(
        sweep=sweep,
        versions=libraries,
        factor=FACTOR,
        plot=PLOT,
        table="\n".join(table(HEAD, map(_row, measured))),
        deltas="\n".join(
            table(("figure", "case", "delta"), chain.from_iterable(map(_deltas, measured)))
        ),
    )


def _row(population: Population) -> list[str]:
    counts = str(len(population.correct)), str(len(population.broken))
    if not population.correct or not population.broken:
        return [population.name, counts[0], "", counts[1], "", "", "", population.refusal]
    threshold = "none: too close" if population.threshold is None else f"{population.threshold:.1e}"
    weakest = population.weakest
    return [population.name, counts[0], f"{population.largest_correct:.1e}", counts[1],
            f"{weakest.value:.1e}", f"`{weakest.fault}` in {weakest.case}",
            f"{population.separation:.0f} times", threshold]  # fmt: skip


def _deltas(population: Population) -> list[list[str]]:
    ordered = sorted((*population.correct, *population.broken), key=lambda delta: delta.value)
    return [[population.name, delta.case, f"{delta.value:.1e}"] for delta in ordered]


def draw(measured: Sequence[Population], path: Path) -> None:
    """A row for each figure: correct deltas, broken ones, and the threshold between them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 1.2 + 0.75 * len(measured)), dpi=110)
    axes: Axes = figure.subplots()
    for row, population in enumerate(measured):
        _draw(axes, population, len(measured) - 1 - row)
    axes.set_xscale("log")
    axes.set_ylim(-0.6, len(measured) - 0.3)
    axes.set_yticks(range(len(measured)), [_label(population) for population in reversed(measured)])
    axes.set_xlabel("largest difference over the steps, or size of its mean")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))  # each once
    axes.legend(named.values(), named.keys(), loc="lower right", bbox_to_anchor=(1.0, 1.0),
                ncols=4, fontsize=8, frameon=False)  # fmt: skip
    figure.tight_layout()
    figure.savefig(path)


def _label(population: Population) -> str:
    """The label of a row of the plot: `parity, float32`, and below it `loss, mean`."""
    mean = ", mean" if population.is_mean else ""
    return f"{population.check}, {population.dtype}\n{population.figure}{mean}"


def _draw(axes: Axes, population: Population, height: int) -> None:
    floor, threshold = population.floor, population.threshold
    seen = [delta.value for delta in population.correct if delta.value >= floor]
    unseen = [floor] * (len(population.correct) - len(seen))
    broken = [delta.value for delta in population.broken if delta.value > 0]
    up, down = height + 0.12, height - 0.12
    axes.plot(seen, [up] * len(seen), "o", color=CORRECT, label="correct")
    axes.plot(unseen, [up] * len(unseen), "<", mfc="none", color=CORRECT,
              label="correct, too small to see")  # fmt: skip
    axes.plot(broken, [down] * len(broken), "x", color=BROKEN, label="broken")
    if threshold is not None:
        axes.plot([threshold] * 2, [height - 0.35, height + 0.35], color=LINE, label="threshold")
        axes.annotate(f"{threshold:.1e}", (threshold, height + 0.37), fontsize=8, ha="center")
