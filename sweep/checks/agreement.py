"""Whether two cases agree, and where they do not, which of the two the others agree with."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from sweep.checks import peers
from sweep.checks.base import Context, Outcome
from sweep.checks.comparison import Comparison
from sweep.checks.thresholds import Table
from sweep.errors import RequestError
from sweep.facts import Facts

WITNESSES = 8  # other cases that are asked, at most

CHECK = "parity"


def compare(facts: Facts, reference: Facts, limits: Table) -> Comparison:
    """The two, by those of their whole runs that are the nearest to each other."""
    runs = product(_runs(facts), _runs(reference))
    name = reference.case.id
    compared = [Comparison(ours, theirs, name, CHECK, limits) for ours, theirs in runs]
    return min(compared, key=lambda one: max((each.largest for each in one.series), default=0.0))


def _runs(facts: Facts) -> list[Facts]:
    """The facts with each of the repeats of the whole run in its place."""
    if not facts.launches:
        return [facts]
    whole = [one for one in facts.runs_of(facts.launches[0]) if one.metrics.steps]
    return [facts.model_copy(update={"launches": [one]}) for one in whole] or [facts]


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


@dataclass(frozen=True)
class Sides:
    """Two cases that differ, and the others that agree with one of the two alone."""

    facts: Facts
    reference: Facts
    ours: list[str]
    theirs: list[str]

    @classmethod
    def of(cls, facts: Facts, reference: Facts, context: Context) -> Sides:
        """Ask those of their peers that trained to the end."""
        both = (facts.case.id, reference.case.id)
        others = peers.peers(facts, context.sweep)
        asked = [one for one in others if one.case.id not in both and peers.is_whole(one)]
        ours: list[str] = []
        theirs: list[str] = []
        for one in asked[:WITNESSES]:
            with_us, with_them = (
                _agree(facts, one, context.limits),
                _agree(reference, one, context.limits),
            )
            if with_us != with_them:
                (ours if with_us else theirs).append(one.case.id)
        return cls(facts, reference, ours, theirs)

    @property
    def odd(self) -> Facts | None:
        """The one that fewer agree with; None where as many do."""
        if len(self.ours) == len(self.theirs):
            return None
        return self.reference if len(self.ours) > len(self.theirs) else self.facts

    def __str__(self) -> str:
        if self.odd is None:
            names = f"{self.facts.case.id} or {self.reference.case.id}"
            return f"no other case tells which of the two is wrong, {names}"
        right = self.facts if self.odd is self.reference else self.reference
        agreeing = self.ours if self.odd is self.reference else self.theirs
        return (
            f"{', '.join(agreeing)} agree with {right.case.id}: {self.odd.case.id} is the odd one"
        )


def _agree(facts: Facts, other: Facts, limits: Table) -> bool:
    return judged(compare(facts, other, limits))[0] is Outcome.PASS
