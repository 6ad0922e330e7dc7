"""The nights as JSON."""

from __future__ import annotations

import math
from typing import Any

from sweep.history.case import CaseHistory, Place
from sweep.history.trend import Trend
from sweep.history.view import View


def data(view: View) -> dict[str, Any]:
    """Nights, and for each case its verdicts, trends, changes and warnings."""
    return {
        "experiment": view.experiment,
        "nights": [
            {"started": night[0].started, "sweeps": [sweep.sweep_id for sweep in night]}
            for night in view.nights
        ],
        "cases": [_case(view, case) for case in view.cases],
    }


def _case(view: View, case: CaseHistory) -> dict[str, Any]:
    changed, pairs = case.flakiness
    return {
        "case_id": case.case_id,
        "verdict": case.verdict or None,
        "since": case.streak[0].night.sweep_id if case.streak else None,
        "nights_since": len(case.streak),
        "failing_since": case.failing[0].night.sweep_id if case.failing else None,
        "last_good": case.last_good.night.sweep_id if case.last_good else None,
        "pass_rate": case.pass_rate,
        "flakiness": {"changes": changed, "pairs": pairs},
        "thresholds": {trend.check: _trend(trend) for trend in case.trends},
        "seconds": case.seconds,
        "warnings": case.warnings,
        "verdicts": [_verdict(place) for place in view.cells(case)],
        "changes": [
            {
                "sweep": change.now.night.sweep_id,
                "verdicts": change.verdicts,
                "moved": change.moved,
                "commits": view.commits.between(*change.commits) if change.commits else [],
            }
            for change in case.changes
        ],
    }


def _verdict(place: Place | None) -> str | None:
    """None where it was not asked for."""
    return None if place is None else place.verdict or "not run"


def _trend(trend: Trend) -> dict[str, Any]:
    left = trend.nights_left
    return {
        "latest": trend.latest,
        "closest": trend.closest,
        "rise_per_night": trend.slope,
        "nights_left": left if math.isfinite(left) else None,
        "warning": trend.warning or None,
    }
