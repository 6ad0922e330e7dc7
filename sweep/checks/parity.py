"""Every layout, and every feature, computes what the plainest case of its architecture computes.

Gradient norms are compared by parameter group as well: many faults have the right loss and wrong
gradients, and Adam hides a gradient that is off by a constant. Being plain makes no case right:
where two differ, the others say which of the two is the odd one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sweep.checks import peers, ties
from sweep.checks.base import Context, Finding, Outcome, largest_margin, largest_metrics
from sweep.checks.sides import Sides
from sweep.facts import Facts

ALONE = "compared with nothing: no other case of the sweep trains the same"


def check(facts: Facts, context: Context) -> Finding | None:
    """Compare along each axis; None for the reference itself, unless it is the odd one."""
    axes = peers.axes(facts, context.sweep)
    if not axes:
        return _of_reference(facts, context)
    usable = [axis for axis in axes if any(map(peers.is_whole, axis))]
    findings = [_along(axis, facts, context) for axis in usable or axes]
    ranked = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
    worst = min(findings, key=lambda finding: (finding.advisory, ranked.index(finding.outcome)))
    # what explains the outcome first, then the rest
    ordered = sorted(findings, key=lambda finding: finding.outcome is not worst.outcome)
    message = "; ".join(dict.fromkeys(filter(None, (finding.message for finding in ordered))))
    update = {"metrics": largest_metrics(findings), "message": message}
    return worst.model_copy(update={**update, "margin": largest_margin(findings)})


def _along(axis: Sequence[Facts], facts: Facts, context: Context) -> Finding:
    """Compare with the first case of an axis that can be a reference."""
    reference = next(filter(peers.is_whole, axis), None)
    if reference is None:
        names = ", ".join(reference.case.id for reference in axis)
        return _finding(
            Outcome.INCONCLUSIVE, f"nothing to compare with: {names} did not train to its end"
        )
    compared, outcome, message = ties.agreed(facts, reference, context.limits)
    is_explained = False  # the reference fails, by the same comparison
    if outcome is Outcome.FAIL and facts.case.fault is None:
        sides = Sides.of(facts, reference, context)
        message += f"; {sides}"
        if sides.odd is reference and not peers.axes(reference, context.sweep):
            outcome, is_explained = Outcome.PASS, True
    finding = _finding(outcome, message, compared.metrics())
    if outcome is not Outcome.INCONCLUSIVE and not is_explained:
        finding.margin = compared.margin()
    if outcome is not Outcome.PASS and facts.launches:
        finding.folder = facts.launches[0].directory
    finding.advisory = bool(compared.pairs) and not compared.reports_batches
    return finding


def _of_reference(facts: Facts, context: Context) -> Finding | None:
    """What those that are compared with this case say of it."""
    if not peers.is_whole(facts) or not context.sweep:
        return None
    others = [other for other in peers.referring(facts, context.sweep) if peers.is_whole(other)]
    if not others:
        finding = _finding(Outcome.INCONCLUSIVE, ALONE)
        return finding.model_copy(update={"advisory": True, "alone": True})
    told: Finding | None = None
    for other in others:
        compared, outcome, message = ties.agreed(facts, other, context.limits)
        if outcome is not Outcome.FAIL:
            continue
        sides = Sides.of(facts, other, context)
        finding = _finding(outcome, f"{message}; {sides}", compared.metrics())
        if sides.odd is facts:
            finding.folder, finding.margin = facts.launches[0].directory, compared.margin()
            return finding
        told = told or finding.model_copy(
            update={"outcome": Outcome.INCONCLUSIVE, "advisory": True}
        )
    return told


def _finding(outcome: Outcome, message: str, metrics: dict[str, float] | None = None) -> Finding:
    return Finding(check="parity", outcome=outcome, message=message, metrics=metrics or {})
