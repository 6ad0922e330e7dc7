"""Every layout, and every feature, computes what the plainest case of its architecture computes.

Gradient norms are compared by parameter group as well: many faults have the right loss and wrong
gradients, and Adam hides a gradient that is off by a constant.
"""

from __future__ import annotations

from sweep.checks import peers
from sweep.checks.base import Context, Finding, Outcome
from sweep.checks.comparison import Comparison
from sweep.errors import RequestError
from sweep.facts import Facts


def check(facts: Facts, context: Context) -> Finding | None:
    """Compare with the reference in the same sweep; None where there is none, or it is the case."""
    candidates = peers.candidates(facts, context.sweep)
    if not candidates:
        return None
    reference = next(filter(peers.is_whole, candidates), None)
    if reference is None:
        names = ", ".join(one.case.id for one in candidates)
        return _finding(
            Outcome.INCONCLUSIVE, f"nothing to compare with: {names} did not train to its end"
        )
    compared = Comparison(facts, reference, reference.case.id, "parity")
    outcome, message = _judged(compared)
    finding = _finding(outcome, message, compared.metrics())
    if outcome is Outcome.FAIL:
        finding.margin = compared.margin()
    if outcome is not Outcome.PASS and facts.launches:
        finding.folder = facts.launches[0].directory
    finding.advisory = bool(compared.pairs) and not compared.reports_batches
    return finding


def _judged(compared: Comparison) -> tuple[Outcome, str]:
    if unlike := peers.other_checkpoint(compared.reference, compared.facts):
        return Outcome.INCONCLUSIVE, f"not comparable with {compared.name}: {unlike}"
    if not compared.pairs:
        return Outcome.INCONCLUSIVE, f"no step in common with {compared.name}"
    try:
        beyond = compared.other_batch() or compared.beyond()
    except RequestError as error:
        return Outcome.INCONCLUSIVE, f"against {compared.name}: {error}"
    if not compared.reports_batches:
        message = "the trainer does not report global_batch_digest, so the data may differ"
        return Outcome.INCONCLUSIVE, f"{message}; {beyond or f'equal to {compared.name}'}"
    if beyond:
        return Outcome.FAIL, beyond
    return _without_a_difference(compared)


def _without_a_difference(compared: Comparison) -> tuple[Outcome, str]:
    """A pass, if enough could be compared."""
    another = compared.another_choice()
    if not compared.alike:
        hint = "no step could be compared; try data.seed=1: a tie is rare, a fault is not"
        return Outcome.INCONCLUSIVE, f"{another}; {hint}"
    if compared.lost_steps > 0:
        message = f"{compared.lost_steps} steps could not be compared with {compared.name}"
        return Outcome.INCONCLUSIVE, message
    return Outcome.PASS, "; ".join(filter(None, (another, compared.unseen())))


def _finding(outcome: Outcome, message: str, metrics: dict[str, float] | None = None) -> Finding:
    return Finding(check="parity", outcome=outcome, message=message, metrics=metrics or {})
