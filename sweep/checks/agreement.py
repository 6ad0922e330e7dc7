"""Whether two cases agree, by their own choices of experts and keys."""

from __future__ import annotations

from itertools import product

from sweep.checks import peers
from sweep.checks.base import Outcome
from sweep.checks.comparison import Comparison
from sweep.checks.thresholds import Table
from sweep.errors import RequestError
from sweep.facts import Facts

CHECK = "parity"


def compare(facts: Facts, reference: Facts, limits: Table) -> Comparison:
    """The two, by those of their whole runs that choose alike for longest, the nearest of them."""
    runs = product(_runs(facts), _runs(reference))
    name = reference.case.id
    compared = [Comparison(ours, theirs, name, CHECK, limits) for ours, theirs in runs]
    return min(compared, key=lambda candidate: (-len(candidate.alike), _largest(candidate)))


def _largest(compared: Comparison) -> float:
    return max((series.largest for series in compared.series), default=0.0)


def _runs(facts: Facts) -> list[Facts]:
    """The facts with each of the repeats of the whole run in its place."""
    if not facts.launches:
        return [facts]
    whole = [launch for launch in facts.runs_of(facts.launches[0]) if launch.metrics.steps]
    return [facts.model_copy(update={"launches": [launch]}) for launch in whole] or [facts]


def judged(compared: Comparison) -> tuple[Outcome, str]:
    """Whether they agree, and what differs first."""
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
