"""A case's loss and gradient norm by step, over those of the other layouts of its architecture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sweep.checks import peers
from sweep.facts import Step
from sweep.report.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOT = "loss.png"
FIGURES = (("loss", "loss"), ("grad_norm", "gradient norm"))
# Okabe and Ito's colours, told apart by colour-blind eyes; the case itself is black.
COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#0072b2", "#999999")
MARKERS = "sD^vPX*"
OWN, RESUMED = "#000000", "#d55e00"


@dataclass(frozen=True)
class Curve:
    """The steps of one launch, and how they are drawn; a wide line lies under a narrow one."""

    label: str
    steps: Sequence[Step]
    colour: str
    marker: str
    width: float
    dashed: bool = False


def draw_all(results: Sequence[Result]) -> str | None:
    """Leave loss.png in the folder of each case that ran; returns what went wrong, if anything."""
    problem = None
    for result in results:
        try:
            if result.facts is not None and result.folder.is_dir():
                draw(result, results, result.folder / PLOT)
        except Exception as error:  # noqa: BLE001  # a picture costs no case its result
            problem = f"no {PLOT} for {result.case.id}: {type(error).__name__}: {error}"
    return problem


def draw(result: Result, results: Sequence[Result], path: Path) -> None:
    """Write the case's plot; figures that are not finite are told in words."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 5.4), dpi=100)
    canvas = FigureCanvasAgg(figure)
    curves = curves_of(result, results)
    upper, lower = figure.subplots(2, 1, sharex=True)
    for axes, (name, words) in zip((upper, lower), FIGURES, strict=True):
        _draw_figure(axes, curves, name)
        axes.set_ylabel(words)
        axes.grid(color="#dddddd", linewidth=0.6)
    lower.set_xlabel("step")
    lower.xaxis.get_major_locator().set_params(integer=True)
    rows = math.ceil(len(curves) / 2)  # of the legend, above the axes
    figure.subplots_adjust(
        left=0.12, right=0.97, bottom=0.09, top=0.935 - 0.034 * rows, hspace=0.08
    )
    figure.text(0.12, 0.965, result.case.id, weight="bold", parse_math=False)
    for text in upper.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.02), ncols=2, fontsize=8, frameon=False,
        borderaxespad=0.0,
    ).get_texts():  # fmt: skip
        text.set_parse_math(False)
    canvas.print_png(path)


def curves_of(result: Result, results: Sequence[Result]) -> list[Curve]:
    """The other layouts of the arch, the case, and its resumed launches, in drawing order."""
    own = result.facts.steps if result.facts else []
    curves = [
        Curve(f"{one.case.layout} {one.case.feature}{apart(own, one.facts.steps)}",
              one.facts.steps, colour, marker, 3.5)
        for one, colour, marker in zip(_others(result, results), COLOURS, MARKERS, strict=False)
        if one.facts
    ]  # fmt: skip
    label = f"{result.case.layout} {result.case.feature}: this case"
    curves.append(Curve(label if own else f"{label}, no step reported", own, OWN, "o", 1.5))
    for launch in result.facts.own_launches[1:] if result.facts else []:
        steps = launch.metrics.steps
        curves.append(Curve(f"{launch.name}{apart(own, steps)}", steps, RESUMED, "x", 1.2, True))
    return curves


def apart(own: Sequence[Step], other: Sequence[Step]) -> str:
    """The largest difference of two runs' losses, which a plot cannot show where it is small."""
    losses = {step.step: step.loss for step in own}
    deltas = [abs(losses[step.step] - step.loss) for step in other if step.step in losses]
    if not deltas:
        return ""
    largest = max(deltas, key=lambda delta: math.inf if math.isnan(delta) else delta)
    if not largest:
        return " (equal losses)"
    return f" (loss off by {largest:.1e} at most)" if math.isfinite(largest) else ""


def _others(result: Result, results: Sequence[Result]) -> list[Result]:
    """One case of every other layout of the arch: with the same feature, else without any."""
    best: dict[str, Result] = {}
    for one in results:
        case, same_feature = one.case, one.case.feature == result.case.feature
        if case.arch != result.case.arch or case.layout == result.case.layout or case.fault:
            continue
        if not one.facts or not one.facts.steps or not (same_feature or case.feature in peers.BASE):
            continue
        if case.layout not in best or same_feature:
            best[case.layout] = one
    return list(best.values())


def _draw_figure(axes: Axes, curves: Sequence[Curve], name: str) -> None:
    for curve in curves:
        values = [getattr(step, name) for step in curve.steps]  # None: the trainer has none
        shown = [math.nan if v is None or not math.isfinite(v) else v for v in values]
        axes.plot(
            [step.step for step in curve.steps], shown, label=curve.label, color=curve.colour,
            marker=curve.marker, markersize=3 + curve.width, linewidth=curve.width,
            linestyle="--" if curve.dashed else "-", alpha=1.0 if curve.width < 2 else 0.7,
        )  # fmt: skip
    _tell_infinite(axes, curves, name)


def _tell_infinite(axes: Axes, curves: Sequence[Curve], name: str) -> None:
    """In words, and where it began: a line that just ends is taken for a short run."""
    told = [(curve, words) for curve in curves if (words := not_finite(curve, name))]
    for curve, _ in told:
        first = next(step for step in curve.steps if _is_wild(step, name))
        axes.axvline(first.step, color=curve.colour, linestyle=":", linewidth=1.2)
    if told:
        axes.text(0.98, 0.96, "\n".join(words for _, words in told), transform=axes.transAxes,
                  ha="right", va="top", fontsize=8, color="#8a3208", parse_math=False,
                  bbox={"facecolor": "white", "edgecolor": "#8a3208"})  # fmt: skip


def not_finite(curve: Curve, name: str) -> str:
    """`cp4_ep4 base: nan at step 3, 4`; empty if every figure is finite."""
    bad = [step for step in curve.steps if _is_wild(step, name)]
    if not bad:
        return ""
    listed = ", ".join(str(step.step) for step in bad[:6]) + (" ..." if len(bad) > 6 else "")
    return f"{curve.label.partition(' (')[0]}: {getattr(bad[0], name)} at step {listed}"


def _is_wild(step: Step, name: str) -> bool:
    value = getattr(step, name)
    return value is not None and not math.isfinite(value)
