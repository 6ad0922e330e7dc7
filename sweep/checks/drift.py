"""What moved since the last good run of the same case, and since the pinned one.

Advisory by default (conf/thresholds.yaml): the blocking oracles are those inside one night, because
stored figures move with every library. With another torch or transformers there is no baseline.
"""

from __future__ import annotations

from sweep.checks import baselines, peers
from sweep.checks.base import Context, Finding, Outcome
from sweep.checks.baselines import Baseline
from sweep.checks.comparison import Comparison
from sweep.errors import RequestError
from sweep.facts import Facts


def check(facts: Facts, context: Context) -> Finding | None:
    """Compare with each baseline; None where the case has none yet."""
    findings = [against(one, facts) for one in baselines.of(facts, context)]
    if not findings:
        return None
    outcomes = [one.outcome for one in findings]
    ranked = (Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS)
    outcome = next(one for one in ranked if one in outcomes)
    return Finding(
        check="drift",
        outcome=outcome,
        message="; ".join(one.message for one in findings if one.message),
        metrics=_largest(findings),
        folder=facts.launches[0].directory if outcome is Outcome.FAIL else "",
        advisory=outcome is Outcome.INCONCLUSIVE,
    )


def against(baseline: Baseline, facts: Facts) -> Finding:
    """Compare with one baseline; inconclusive where that cannot be done."""
    compared = Comparison(facts, baseline.facts, baseline.name, "drift")
    outcome, message = _judged(baseline, compared)
    if outcome is Outcome.FAIL:
        message += f"; {baseline.moved(facts)}"
    metrics = compared.metrics() if _is_same_data(compared) else {}
    return Finding(check="drift", outcome=outcome, message=message, metrics=metrics)


def _judged(baseline: Baseline, compared: Comparison) -> tuple[Outcome, str]:
    none = _no_baseline(baseline, compared)
    if none:
        return Outcome.INCONCLUSIVE, f"no baseline: {none}"
    try:
        beyond = compared.other_figures() or compared.too_far()
    except RequestError as error:
        return Outcome.INCONCLUSIVE, f"against {compared.name}: {error}"
    if beyond:
        return Outcome.FAIL, beyond
    return Outcome.PASS, compared.another_choice()


def _no_baseline(baseline: Baseline, compared: Comparison) -> str:
    """Why the two cannot be compared; empty if they can."""
    unlike = baseline.unlike(compared.facts)
    if unlike:
        return f"{unlike} since {compared.name}"
    libraries = baseline.moved_libraries(compared.facts)
    if libraries:
        return f"{libraries} since {compared.name}{_apart(compared)}"
    if not peers.is_whole(baseline.facts):
        return f"the case did not train to its end in {compared.name}"
    if not compared.pairs:
        return f"no step in common with {compared.name}"
    return compared.other_batch()


def _apart(compared: Comparison) -> str:
    """How far the two are apart, for what it is worth."""
    if not compared.series or not _is_same_data(compared):
        return ""
    found = (f"{one.name} {one.largest:.1e}" for one in compared.series[:2])
    return f"; relative differences: {', '.join(found)}"


def _is_same_data(compared: Comparison) -> bool:
    return bool(compared.pairs) and not compared.other_batch()


def _largest(findings: list[Finding]) -> dict[str, float]:
    """Over the baselines."""
    names = {name for one in findings for name in one.metrics}
    return {
        name: max(one.metrics[name] for one in findings if name in one.metrics)
        for name in sorted(names)
    }
