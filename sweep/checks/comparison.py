"""A case beside another that must compute the same: losses and gradient norms, step by step.

Two experts, or two keys of an indexer, that score the same but for rounding can be picked
differently elsewhere. Training is another from there on, so only the steps before are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from operator import attrgetter

from sweep.checks.differences import Pair, Series, in_common, places_apart, same_choices, series
from sweep.checks.thresholds import Table, Threshold
from sweep.facts import Facts, Step

# As a step has them: None, or not there, where a trainer reports none. Adam hides how far gradients
# were scaled down, so what clipping did is compared as well.
CLIPPING = ("clip_coefficient", "grad_norm_clipped")
FIGURES = ("loss", "grad_norm", "aux_loss", *CLIPPING)
AFTER = "loss_after_choice"
TIE = "tie"  # how far apart two scores may be, as a share of the largest, that rounding can turn
GROUP = "grad_norm_"
GROUPS = ("experts", "router", "norm", "embedding", "head", "attention", "mlp")
"""The built-in trainer's groups of parameters; others may have their own."""

LIMITED = (*FIGURES, *(GROUP + name for name in GROUPS), "choices", AFTER, TIE)
"""What may have a threshold."""


@dataclass(frozen=True)
class Comparison:
    """The first launches of two cases, at the steps that both have.

    `name` is the other case, `check` the one whose thresholds hold, of those in `limits`.
    """

    facts: Facts
    reference: Facts
    name: str
    check: str
    limits: Table

    @cached_property
    def pairs(self) -> list[Pair]:
        """All steps that both have."""
        return in_common(self.facts.steps, self.reference.steps)

    @cached_property
    def alike(self) -> list[Pair]:
        """Those before a choice of experts or keys falls differently.

        All, where no threshold is set for what follows: in a coarse dtype choices differ all the
        time, and its other thresholds have to allow for that.
        """
        if self.limits.configured(self.check, AFTER, self.facts.case) is None:
            return self.pairs
        return list(takewhile(same_choices, self.pairs))

    @property
    def after(self) -> list[Pair]:
        """The others."""
        return self.pairs[len(self.alike) :]

    @property
    def lost_steps(self) -> int:
        """How many steps one of the two should have and has not."""
        return min(self.facts.case.steps, self.reference.case.steps) - len(self.pairs)

    @property
    def reports_batches(self) -> bool:
        """Whether it can be seen that both trained the same data."""
        return all(step.global_batch_digest for pair in self.pairs for step in pair)

    @cached_property
    def series(self) -> list[Series]:
        """Loss, gradient norm, and gradient norm of each parameter group."""
        return list(_series(self.alike)) if self.alike else []

    def metrics(self) -> dict[str, float]:
        """The largest relative differences, by the names that they have in MLflow."""
        largest = {series.name: series.largest for series in self.series}
        deltas = {f"{name}_delta_max": largest[name] for name in FIGURES if name in largest}
        groups = [value for name, value in largest.items() if name not in FIGURES]
        if groups:
            deltas["grad_norm_groups_delta_max"] = max(groups)
        return {f"{self.check}/{name}": value for name, value in deltas.items()}

    def other_batch(self) -> str:
        """The first step at which the data differ; empty if none does."""
        for ours, theirs in self.pairs:
            if ours.global_batch_digest != theirs.global_batch_digest:
                return (
                    f"step {ours.step}: the global batch is {ours.global_batch_digest},"
                    f" {theirs.global_batch_digest} in {self.name}: not the same data"
                )
        return ""

    def other_figures(self) -> str:
        """A figure, or a group's gradient, that only one of the two has; empty if there is none."""
        for ours, theirs in self.pairs:
            for name in FIGURES[1:]:
                has, other = (getattr(step, name, None) is not None for step in (ours, theirs))
                if has != other:
                    said = "reported" if has else "not reported"
                    return f"step {ours.step}: {name} is {said}, unlike {self.name}"
            missing = theirs.grad_norm_groups.keys() - ours.grad_norm_groups.keys()
            more = ours.grad_norm_groups.keys() - theirs.grad_norm_groups.keys()
            if missing:
                return f"step {ours.step}: no gradient of {_and(missing)}, unlike {self.name}"
            if more:
                return f"step {ours.step}: a gradient of {_and(more)}, unlike {self.name}"
        return ""

    def other_buffers(self) -> str:
        """The first step at which what is not trained differs; empty if it never does."""
        for ours, theirs in self.alike:
            if ours.buffers_digest != theirs.buffers_digest:
                return (
                    f"step {ours.step}: untrained buffers (routers' biases) are"
                    f" {ours.buffers_digest}, {theirs.buffers_digest} in {self.name}"
                )
        return ""

    def unseen(self) -> str:
        """Gradients that neither reports, so that losses alone are compared; empty if both do."""
        missing = []
        if all(ours.grad_norm is None for ours, _ in self.pairs):
            missing.append("grad_norm")
        if not any(ours.grad_norm_groups for ours, _ in self.pairs):
            missing.append("grad_norm of parameter groups")
        return f"not compared, since it is not reported: {', '.join(missing)}" if missing else ""

    def too_many_choices(self) -> str:
        """Where more tokens are routed differently than equal scores explain; empty if nowhere."""
        limit = self.limits.configured(self.check, "choices", self.facts.case)
        apart = places_apart(self.after[0]) if self.after else 0
        if limit is None or apart <= limit.value:
            return ""
        return (
            f"step {self.after[0][0].step}: tokens at {apart} places of the batch have other"
            f" experts or keys than in {self.name}; threshold {limit.value:g} ({limit.source})"
        )

    def beyond(self) -> str:
        """What differs by more than it may; empty if nothing does. RequestError as `too_far`."""
        return (
            self.other_figures()
            or self.other_buffers()
            or self.too_far()
            or self.too_many_choices()
        )

    def too_far(self) -> str:
        """The figure farthest beyond its threshold, and which others are; empty if none is.

        Raises RequestError where a threshold is missing.
        """
        beyond = [
            (series, limit)
            for series, limit in self._limited()
            if series.first_beyond(limit) is not None
        ]
        if not beyond:
            return self._too_far_after()
        beyond.sort(key=lambda pair: pair[0].margin(pair[1]), reverse=True)
        (worst, its_limit), *others = beyond
        named = ", ".join(
            f"{series.name} ({series.margin(limit):.2g} times)" for series, limit in others
        )
        also = f"; also beyond their thresholds: {named}" if named else ""
        return worst.said(its_limit, "", self.name) + also

    def margin(self) -> float | None:
        """How many times its threshold the farthest figure is; None if none can be compared."""
        margins = [series.margin(limit) for series, limit in self._limited()]
        return max([*margins, *self._margin_of_choices()], default=None)

    def _limited(self) -> list[tuple[Series, Threshold]]:
        """Each figure with its threshold; raises RequestError where one is missing."""
        return [
            (series, self.limits.of_case(self.check, _figures(series), self.facts.case))
            for series in self.series
        ]

    def _margin_of_choices(self) -> list[float]:
        limit = self.limits.configured(self.check, "choices", self.facts.case)
        if limit is None or not self.after:
            return []
        return [places_apart(self.after[0]) / limit.value]

    def another_choice(self) -> str:
        """From where on choices fall differently, and what that does; empty if they do not."""
        if not self.after:
            return ""
        loss = _loss(self.after)
        return (
            f"other experts or keys than in {self.name} from step {loss.points[0].step} on: the"
            f" loss is at most {abs(loss.worst.signed):.1e} (relative {loss.largest:.1e}) off"
            " from there"
        )

    def _too_far_after(self) -> str:
        """Beyond what another expert for a few tokens can do to the loss."""
        if not self.after:
            return ""
        limit = self.limits.of_case(self.check, (AFTER,), self.facts.case)
        loss = _loss(self.after)
        if loss.first_beyond(limit) is None:
            return ""
        return loss.said(limit, "", self.name) + (
            f"; experts or keys are chosen differently from step {loss.points[0].step} on,"
            " which does not explain it"
        )


def _series(pairs: Sequence[Pair]) -> Iterator[Series]:
    for name in FIGURES:
        if all(getattr(step, name, None) is not None for pair in pairs for step in pair):
            yield series(name, attrgetter(name), pairs)
    groups = [step.grad_norm_groups.keys() for pair in pairs for step in pair]
    for group in sorted(set(groups[0]).intersection(*groups)):
        yield series(f"grad_norm of {group}", _norm_of(group), pairs)


def _norm_of(group: str) -> Callable[[Step], float]:
    return lambda step: step.grad_norm_groups[group]


def _loss(pairs: Sequence[Pair]) -> Series:
    return series("loss", lambda step: step.loss, pairs)


def _figures(series: Series) -> tuple[str, ...]:
    """What a threshold may be given for: `grad_norm_router`, else `grad_norm`."""
    general = "loss" if series.name == "aux_loss" else series.name.split(" of ")[0]
    general = "grad_norm" if series.name in CLIPPING else general
    return series.name.replace(" of ", "_"), general


def _and(names: set[str]) -> str:
    return ", ".join(sorted(names))
