"""What moved since the last good run of the same case, and since the pinned one.

Only cases of one identity are compared, whatever their provenance; the rules are those of parity.
Advisory by default (conf/thresholds.yaml): stored figures move with every library. What moved of
the provenance is named.
"""

from __future__ import annotations

from sweep.checks import baselines, peers
from sweep.checks.base import Context, Finding, Outcome, largest_margin, largest_metrics
from sweep.checks.baselines import Baseline
from sweep.checks.comparable import PRODUCED
from sweep.checks.comparison import Comparison
from sweep.checks.thresholds import Table
from sweep.errors import RequestError
from sweep.facts import Facts


def check(facts: Facts, context: Context) -> Finding | None:
    """Compare with each baseline; None where the case has none yet."""
    findings = [
        against(baseline, facts, context.limits) for baseline in baselines.of(facts, context)
    ]
    if not findings:
        return None
    outcomes = [finding.outcome for finding in findings]
    ranked = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
    outcome = next(outcome for outcome in ranked if outcome in outcomes)
    return Finding(
        check="drift",
        outcome=outcome,
        message="; ".join(finding.message for finding in findings if finding.message),
        metrics=largest_metrics(findings),
        margin=largest_margin(findings),
        folder=facts.launches[0].directory if outcome is Outcome.FAIL else "",
        advisory=all(finding.advisory for finding in findings if finding.outcome is outcome),
    )


def against(baseline: Baseline, facts: Facts, limits: Table) -> Finding:
    """Compare with one baseline; inconclusive where that cannot be done."""
    compared = Comparison(facts, baseline.facts, baseline.name, "drift", limits)
    if unlike := _not_comparable(baseline, facts):
        return unlike
    outcome, message = _judged(baseline, compared)
    if outcome is not Outcome.PASS:
        message += f"; {baseline.moved(facts)}"
    metrics = compared.metrics() if _is_same_data(compared) else {}
    is_advisory = outcome is Outcome.INCONCLUSIVE
    margin = None if outcome is Outcome.INCONCLUSIVE else _margin(compared)
    return Finding(
        check="drift",
        outcome=outcome,
        message=message,
        metrics=metrics,
        advisory=is_advisory,
        margin=margin,
    )


def _margin(compared: Comparison) -> float | None:
    """How near the thresholds it is; None with other data, or where a threshold is missing."""
    try:
        return compared.margin() if _is_same_data(compared) else None
    except RequestError:
        return None


def _not_comparable(baseline: Baseline, facts: Facts) -> Finding | None:
    """A finding where the two have another identity; None if they have the same.

    Other settings were asked for. Another checkpoint or other data under the same settings were
    not, so that this speaks against the case where drift blocks.
    """
    unlike = baseline.unlike(facts)
    if not unlike:
        return None
    is_asked = bool(baseline.unlike(facts, free=PRODUCED))
    message = f"not comparable with {baseline.name}: {unlike}"
    if not is_asked:
        message += f", under the same settings; {baseline.moved(facts)}"
    return Finding(check="drift", outcome=Outcome.INCONCLUSIVE, message=message, advisory=is_asked)


def _judged(baseline: Baseline, compared: Comparison) -> tuple[Outcome, str]:
    if not peers.is_whole(baseline.facts):
        message = f"no baseline: the case did not train to its end in {compared.name}"
        return Outcome.INCONCLUSIVE, message
    if not compared.pairs:
        return Outcome.INCONCLUSIVE, f"no step in common with {compared.name}"
    try:
        beyond = compared.other_batch() or compared.beyond()
    except RequestError as error:
        return Outcome.INCONCLUSIVE, f"against {compared.name}: {error}"
    if beyond:
        return Outcome.FAIL, beyond
    if not compared.alike:
        return Outcome.INCONCLUSIVE, f"no step could be compared; {compared.another_choice()}"
    return Outcome.PASS, compared.another_choice()


def _is_same_data(compared: Comparison) -> bool:
    return bool(compared.pairs) and not compared.other_batch()
