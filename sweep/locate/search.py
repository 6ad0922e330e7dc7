"""Walks a step in the order in which it is computed, to the first place where two runs differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np

from sweep.locate.difference import Difference, between
from sweep.locate.reading import BACKWARD, FORWARD, Key, Run, Step
from sweep.locate.tokens import first_unlike

OUTSIDE = "(outside of the model)"
WHOLE = "(the model itself)"
OPTIONS = ("lr", "weight_decay", "beta1", "beta2", "eps", "step")  # as in sweep_taps/parameters.py
MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")
CLOSE = 1e-9  # relative: options are numbers that somebody wrote down


@dataclass
class Place:
    """Where two runs part first."""

    step: int
    stage: str  # data, state, forward, loss, backward, reduction, optimizer
    module: str  # qualified name, or OUTSIDE
    what: str  # in words: what differs
    inputs_agree: bool = True
    size: float | None = None
    rounding: float | None = None
    tokens: int = 0  # that differ
    where: str = ""  # the worst token, or the parameter with its row
    rank: int | None = None
    heads: list[int] = field(default_factory=list)
    more: list[str] = field(default_factory=list)  # other parameters


class Search:
    """Two runs, and perhaps a third that is the second but for rounding."""

    def __init__(self, ours: Run, theirs: Run, again: Run | None, is_sharded: bool) -> None:
        self.ours, self.theirs, self.again = ours, theirs, again
        self.is_sharded = is_sharded

    def first(self) -> Place | None:
        """The first place, step by step; None if nothing differs but by rounding."""
        for number in self.ours.steps:
            if number not in self.theirs.tokens or number not in self.theirs.steps:
                return _unlike_steps(number)
            if (place := _data(number, self.ours, self.theirs)) is not None:
                return place
            has_noise = self.again is not None and number in self.again.steps
            again = self.again.step(number) if self.again and has_noise else None
            pair = Pair(number, self.ours.step(number), self.theirs.step(number), again)
            pair.before = self._before(number)
            if (place := pair.first(self.is_sharded)) is not None:
                return place
        return None

    def _before(self, number: int) -> tuple[Step, Step, Step | None] | None:
        """The steps before, of runs that went through it: what one that begins here starts from."""
        if number != self.ours.steps[0] or number - 1 not in self.theirs.steps:
            return None
        has_noise = self.again is not None and number - 1 in self.again.steps
        again = self.again.step(number - 1) if self.again and has_noise else None
        return self.ours.step(number), self.theirs.step(number - 1), again


def _unlike_steps(number: int) -> Place:
    return Place(number, "data", OUTSIDE, "the reference has no such step", False)


def _data(number: int, ours: Run, theirs: Run) -> Place | None:
    unlike = first_unlike(ours.tokens[number], theirs.tokens[number])
    if unlike is None:
        return None
    document, how = unlike
    return Place(number, "data", OUTSIDE, how, False, where=f"row {document.row}")


class Pair:
    """The same step of both runs."""

    def __init__(self, number: int, ours: Step, theirs: Step, again: Step | None) -> None:
        self.number, self.ours, self.theirs, self.again = number, ours, theirs, again
        self.before: tuple[Step, Step, Step | None] | None = None

    def first(self, is_sharded: bool) -> Place | None:
        """Stage by stage."""
        stages: tuple[Callable[[], Place | None], ...] = (
            self._state,
            self._forward,
            self._backward,
            lambda: self._gradients("reduction" if is_sharded else "backward"),
            self._clipping,
            self._options,
            self._optimizer,
        )
        return next((place for stage in stages if (place := stage())), None)

    def _state(self) -> Place | None:
        """What the run starts from: weights, buffers and what the optimizer remembers."""
        if self.before is not None:  # the reference went on from the step before
            ours, theirs, again = self.before
            kinds = {f"{kind}_before": kind for kind in ("weight", *MOMENTS)}
        else:
            ours, theirs, again = self.ours, self.theirs, self.again
            kinds = {f"{kind}_before": f"{kind}_before" for kind in ("weight", *MOMENTS)}
        for kind, other in kinds.items():
            found = _parameters(ours, theirs, again, kind, other)
            if found:
                what = kind.removesuffix("_before")
                text = "the weights that it starts from" if what == "weight" else f"{what} restored"
                return self._of_parameters("state", text, found)
        return None

    def _forward(self) -> Place | None:
        found = next(self._modules(FORWARD), None)
        if found is None:
            return None
        name, slot = found.key.name, found.key.slot
        if found.key.kind != "out" and not name:
            text = f"the model's input {slot}"
            return self._of_tokens("data", OUTSIDE, text, found, inputs_agree=False)
        if found.key.kind == "out":
            return self._of_tokens("forward", name, _slotted("its output", slot), found)
        text = f"what it hands to {_last(name)} ({slot})"
        return self._of_tokens("forward", _parent(name), text, found)

    def _backward(self) -> Place | None:
        found = next(self._modules(BACKWARD), None)
        if found is None:
            return None
        name, slot = found.key.name, found.key.slot
        if found.key.kind == "grad_out" and not self._seen_before(found.key):
            text = "the gradient of the model's output: its loss, or how it is scaled"
            return self._of_tokens("loss", OUTSIDE, text, found)
        if found.key.kind == "grad_in":
            text = f"the gradient that it hands back for its input {slot}"
            return self._of_tokens("backward", name, text, found)
        text = f"the gradient of {_last(name)}'s output" + (f" {slot}" if slot else "")
        return self._of_tokens("backward", _parent(name), text, found)

    def _seen_before(self, key: Key) -> bool:
        """Whether a gradient of another tensor than the model's output came before this one."""
        order = self.theirs.of(BACKWARD)
        earlier = order[: order.index(key)] if key in order else order
        return any(other.name for other in earlier) or bool(key.name and earlier)

    def _gradients(self, stage: str) -> Place | None:
        found = _parameters(self.ours, self.theirs, self.again, "grad", "grad")
        return self._of_parameters(stage, "its gradient", found) if found else None

    def _clipping(self) -> Place | None:
        found = _parameters(self.ours, self.theirs, self.again, "stepped", "stepped")
        if not found:
            return None
        text = "the gradient that the optimizer gets (clipping, scaling)"
        return self._of_parameters("optimizer", text, found)

    def _options(self) -> Place | None:
        mine = {k.name: v for k, v in self.ours.parameters.items() if k.kind == "options"}
        others = {k.name: v for k, v in self.theirs.parameters.items() if k.kind == "options"}
        if not mine:
            return None
        found = [
            (name, words)
            for name, theirs in others.items()
            if (words := _unlike_options(mine.get(name), theirs))
        ]
        if not found:
            return None
        name, words = found[0]
        more = [name for name, _ in found[1:]]
        module = common([name, *more])
        return Place(self.number, "optimizer", module, words, where=name, more=more)

    def _optimizer(self) -> Place | None:
        for kind in (*MOMENTS, "weight"):
            found = _parameters(self.ours, self.theirs, self.again, kind, kind)
            if found:
                text = "the weight after the step" if kind == "weight" else f"{kind} after the step"
                return self._of_parameters("optimizer", text, found)
        return None

    def _modules(self, kinds: Sequence[str]) -> Iterator[Difference]:
        """Differences of the modules' records, in the reference's order."""
        for key in self.theirs.of(kinds):
            mine, other = self.ours.modules.get(key), self.theirs.modules[key]
            if mine is None and key.kind not in BACKWARD:
                continue  # a layout may compute it elsewhere
            again = self.again.modules.get(key) if self.again else None
            mine = np.where(np.isnan(other), np.nan, 0.0) if mine is None else mine
            found = between(key, mine, other, again)
            if found is not None:
                yield found

    def _of_tokens(
        self, stage: str, module: str, what: str, found: Difference, inputs_agree: bool = True
    ) -> Place:
        token = self.ours.tokens.places[found.worst]
        rank = int(self.ours.ranks[found.worst])
        return Place(
            self.number, stage, module, what, inputs_agree, found.size, found.rounding,
            len(found.rows), str(token), None if rank < 0 else rank, self._heads(found),
        )  # fmt: skip

    def _heads(self, found: Difference) -> list[int]:
        """The heads that differ, where the difference is in what attention hands on."""
        key = Key("heads", found.key.name, found.key.slot, found.key.call)
        ours, theirs = self.ours.modules.get(key), self.theirs.modules.get(key)
        if ours is None or theirs is None or ours.shape != theirs.shape:
            return []
        off = np.nan_to_num(np.abs(ours - theirs)).max(0) / (np.nanmean(np.abs(theirs)) + 1e-30)
        return np.flatnonzero(off > max(off.max() * 0.01, 1e-6)).tolist()

    def _of_parameters(self, stage: str, what: str, found: list[Difference]) -> Place:
        worst = max(found, key=lambda one: one.excess)
        name, rows = worst.key.name, worst.rows
        span = f"rows {rows[0]} to {rows[-1]}" if len(rows) > 1 else f"row {rows[0]}"
        known = self.theirs.parameters.get(worst.key)
        count = self.ours.shards.get(name, 1)
        rank = None
        if count > 1 and known is not None:
            rank = int(worst.worst) // -(-len(known) // count)
        more = [one.key.name for one in found if one is not worst]
        return Place(
            self.number, stage, common([name, *more]), what, True, worst.size, worst.rounding, 0,
            f"{name}, {len(rows)} of its rows ({span})", rank, more=more,
        )  # fmt: skip


def common(parameters: Sequence[str]) -> str:
    """The innermost module that has all of these parameters."""
    owners = [name.split(".")[:-1] for name in parameters]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*owners, strict=False))
    return ".".join(parts[0] for parts in shared) or WHOLE


def _parameters(
    ours: Step, theirs: Step, again: Step | None, kind: str, other: str
) -> list[Difference]:
    """Parameters that differ in a record, in the model's order."""
    found = []
    for key, values in theirs.parameters.items():
        if key.kind != other:
            continue
        mine = ours.parameters.get(Key(kind, key.name))
        if mine is None and not any(known.kind == kind for known in ours.parameters):
            return []  # this run has no such record at all
        noise = None if again is None else again.parameters.get(key)
        mine = np.zeros_like(values) if mine is None else mine
        difference = between(Key(kind, key.name), mine, values, noise)
        if difference is not None:
            found.append(difference)
    return found


def _unlike_options(ours: Any, theirs: Any) -> str:
    if ours is None:
        return "it is in no group of the optimizer"
    for name, one, other in zip(OPTIONS, ours, theirs, strict=True):
        is_known = np.isfinite(one) and np.isfinite(other)
        if is_known and abs(one - other) > CLOSE * max(abs(one), abs(other)):
            return f"{name} is {one:g}, in the reference {other:g}"
    return ""


def _slotted(text: str, slot: str) -> str:
    return f"{text} {slot}" if slot else text


def _parent(name: str) -> str:
    return name.rpartition(".")[0] or WHOLE


def _last(name: str) -> str:
    return name.rpartition(".")[2]
