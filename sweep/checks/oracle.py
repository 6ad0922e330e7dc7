"""Every case computes what plain transformers computes from its checkpoint and its batches.

The oracle (docs/oracle.md) shares no code with the trainer, so this sees faults that every layout
has alike, which no comparison of layouts does. It also sees whether the documents are those of the
source.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sweep.checks.base import Context, Finding, Outcome
from sweep.checks.comparison import LIMITED as COMPARED
from sweep.checks.comparison import Comparison
from sweep.checks.differences import Pair, Series, series
from sweep.checks.thresholds import Table
from sweep.errors import RequestError
from sweep.facts import Facts, LaunchFacts, Metrics, OracleFacts

NAME = "the oracle"
TURNED = "turned_picks"
LIMITED = (*COMPARED, "lr")
"""What may have a threshold."""


class Opinion(Comparison):
    """The case next to the oracle's figures."""

    @cached_property
    def alike(self) -> list[Pair]:
        """All steps: the oracle's picks fall as the trainer's do, where rounding decides."""
        return self.pairs

    @cached_property
    def series(self) -> list[Series]:
        """As for another layout, with the learning rate."""
        return [*super().series, *self._reported("lr")]

    def _reported(self, name: str) -> list[Series]:
        """A figure as a series, if the trainer and the oracle have it at every step."""
        values = [getattr(step, name) for pair in self.alike for step in pair]
        if not values or None in values:
            return []
        return [series(name, lambda step: getattr(step, name), self.alike)]

    def other_tokens(self) -> str:
        """The first step whose loss is over other tokens; empty if there is none."""
        for ours, theirs in self.pairs:
            if ours.tokens not in (None, theirs.tokens):
                return (
                    f"step {ours.step}: the loss is taken over {ours.tokens} tokens, but"
                    f" {theirs.tokens} of its batch are under the loss"
                )
        return ""

    def unseen(self) -> str:
        """What was not compared, and why; empty if all was."""
        said = [super().unseen()]
        if any(
            theirs.aux_loss is not None and ours.aux_loss is None for ours, theirs in self.pairs
        ):
            said.append("not compared, since it is not reported: aux_loss")
        turned = sum(_turned(pair) for pair in self.pairs)
        if turned:
            said.append(
                f"{turned} picks of experts or keys, whose scores are equal but for rounding,"
                " fall as the trainer's loss and gradient norm say"
            )
        if self.lost_steps > 0:
            said.append(f"{self.lost_steps} steps have no figures or no batches")
        return "; ".join(filter(None, said))


def check(facts: Facts, context: Context) -> Finding | None:
    """Compare with the oracle's answer; None where the trainer's adapter does not ask for one."""
    opinion = facts.oracle
    if opinion is None or not facts.launches:
        return None
    if opinion.reason:
        outcome = Outcome.FAIL if opinion.is_wrong else Outcome.INCONCLUSIVE
        said = opinion.reason if opinion.is_wrong else f"not compared: {opinion.reason}"
        return Finding(check="oracle", outcome=outcome, message=said,
                       advisory=not opinion.is_wrong)  # fmt: skip
    return _judged(facts, _opinion(facts, opinion, context.limits), opinion)


def series_of(facts: Facts, limits: Table) -> list[Series]:
    """What is compared with the oracle's figures; empty where it has none."""
    opinion = facts.oracle
    if opinion is None or not opinion.steps or not facts.launches:
        return []
    return _opinion(facts, opinion, limits).series


def _opinion(facts: Facts, opinion: OracleFacts, limits: Table) -> Opinion:
    return Opinion(facts, _as_case(facts, opinion), NAME, "oracle", limits)


def _judged(facts: Facts, compared: Opinion, opinion: OracleFacts) -> Finding:
    try:
        wrong = (
            other_documents(opinion) or compared.other_tokens() or compared.too_far()
            if compared.pairs
            else "no step in common with the oracle"
        )
        margin = compared.margin()
    except RequestError as error:  # no threshold for this device and dtype
        return Finding(check="oracle", outcome=Outcome.INCONCLUSIVE, advisory=True,
                       message=f"not compared: {error}", metrics=compared.metrics())  # fmt: skip
    return Finding(
        check="oracle",
        outcome=Outcome.FAIL if wrong else Outcome.PASS,
        message=wrong or compared.unseen(),
        metrics=compared.metrics(),
        margin=margin,
        folder=facts.launches[0].directory if wrong else "",
    )


def other_documents(opinion: OracleFacts) -> str:
    """What a trained document has otherwise than the source; empty if nothing."""
    data: dict[str, Any] = opinion.data
    if not data.get("wrong"):
        return ""
    return (
        f"the data: {data['problems'][0]} ({data['wrong']} such findings in"
        f" {data['documents']} trained documents, the source has {data['source_documents']})"
    )


def _as_case(facts: Facts, opinion: OracleFacts) -> Facts:
    """The oracle's figures as those of a case, to be compared like one."""
    first = facts.launches[0]
    launch: LaunchFacts = first.model_copy(update={"metrics": Metrics(steps=opinion.steps)})
    return facts.model_copy(update={"launches": [launch]})


def _turned(pair: Pair) -> int:
    return int((pair[1].model_extra or {}).get(TURNED, 0))
