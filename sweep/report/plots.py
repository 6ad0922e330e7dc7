"""A case's loss and gradient norm by step, over those of the other layouts of its architecture.

MLflow charts the same figures, but of the runs that somebody ticks. This picture is made for each
case: it can be attached to a bug report, and needs no server.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep.checks import peers
from sweep.facts import Step
from sweep.report.result import Result

PLOT = "loss.png"
FIGURES = (("loss", "loss"), ("grad_norm", "gradient norm"))
MARKERS = "sD^vPX*"  # at most so many other layouts are drawn


@dataclass(frozen=True)
class Curve:
    """The steps of one launch, and the format string of its line; wide lines lie under narrow."""

    label: str
    steps: Sequence[Step]
    style: str
    width: float


def draw_all(results: Sequence[Result]) -> str | None:
    """Leave loss.png in the folder of each case that ran; returns what went wrong, if anything."""
    problem = None
    for result in results:
        try:
            if result.facts is not None and result.folder.is_dir():
                draw(result, results, result.folder / PLOT)
        except Exception as error:  # noqa: BLE001  # a missing picture fails no case
            problem = f"no {PLOT} for {result.case.id}: {type(error).__name__}: {error}"
    return problem


def draw(result: Result, results: Sequence[Result], path: Path) -> None:
    """Write the case's plot."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    curves = curves_of(result, results)
    with rc_context({"text.parse_math": False, "axes.grid": True, "grid.color": "#dddddd"}):
        figure = Figure(figsize=(7.2, 5.4), layout="constrained")
        figure.suptitle(result.case.id, weight="bold", fontsize="medium")
        axes = figure.subplots(2, 1, sharex=True)
        for part, (name, title) in zip(axes, FIGURES, strict=True):
            part.set_ylabel(title)
            for curve in curves:
                part.plot(
                    [step.step for step in curve.steps],
                    _finite(curve.steps, name),
                    curve.style,
                    label=curve.label,
                    linewidth=curve.width,
                    markersize=curve.width + 3,
                )
        axes[1].set_xlabel("step")
        axes[1].xaxis.get_major_locator().set_params(integer=True)
        lines, labels = axes[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower left", ncols=2, fontsize=8)
        figure.savefig(path)


def curves_of(result: Result, results: Sequence[Result]) -> list[Curve]:
    """The other layouts of the arch, the case, and its resumed launches, in drawing order."""
    own = result.facts.steps if result.facts else []
    others = _others(result, results)[: len(MARKERS)]
    drawn = [
        (
            f"{other.case.layout} {other.case.feature}",
            other.facts.steps,
            f"C{number}{MARKERS[number]}-",
            3.5,
        )
        for number, other in enumerate(others)
        if other.facts
    ]
    label = f"{result.case.layout} {result.case.feature}: this case"
    drawn.append((label if own else f"{label}, no step reported", own, "ko-", 1.5))
    resumed = result.facts.own_launches[1:] if result.facts else []
    drawn += [(launch.name, launch.metrics.steps, "rx--", 1.2) for launch in resumed]
    return [
        Curve(
            f"{label}{'' if steps is own else difference(own, steps)}{not_finite(steps)}",
            steps,
            style,
            width,
        )
        for label, steps, style, width in drawn
    ]


def difference(own: Sequence[Step], other: Sequence[Step]) -> str:
    """The largest difference of two runs' losses, which a plot cannot show where it is small."""
    losses = {step.step: step.loss for step in own}
    deltas = [abs(losses[step.step] - step.loss) for step in other if step.step in losses]
    if not deltas or not all(map(math.isfinite, deltas)):
        return ""
    return f" (loss off by {max(deltas):.1e} at most)" if max(deltas) else " (equal losses)"


def not_finite(steps: Sequence[Step]) -> str:
    """`; loss nan at step 3, 4`: a line that just ends looks like a short run."""
    parts = []
    for name, _ in FIGURES:
        bad = [step for step in steps if not math.isfinite(getattr(step, name) or 0.0)]
        if bad:
            listed = ", ".join(str(step.step) for step in bad[:6]) + (" ..." if bad[6:] else "")
            parts.append(f"; {name} {getattr(bad[0], name)} at step {listed}")
    return "".join(parts)


def _finite(steps: Sequence[Step], name: str) -> list[float]:
    values = [getattr(step, name) for step in steps]  # None: not reported
    return [value if value is not None and math.isfinite(value) else math.nan for value in values]


def _others(result: Result, results: Sequence[Result]) -> list[Result]:
    """One case of every other layout of the arch: with the same feature, else without any."""
    best: dict[str, Result] = {}
    for other in results:
        case, same_feature = other.case, other.case.feature == result.case.feature
        if case.arch != result.case.arch or case.layout == result.case.layout or case.fault:
            continue
        if not other.facts or not other.facts.steps:
            continue
        if same_feature or (case.feature in peers.BASE and case.layout not in best):
            best[case.layout] = other
    return list(best.values())
