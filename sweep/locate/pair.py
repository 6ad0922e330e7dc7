"""One step of two runs, stage by stage in the order in which it is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from sweep.locate.difference import FACTOR, Difference, between
from sweep.locate.parameters import MOMENTS, Records, options, unlike_options
from sweep.locate.place import OUTSIDE, WHOLE, Place, module_of, owner
from sweep.locate.reading import AGAIN, BACKWARD, FORWARD, INTEGERS, Key, Step

UNLIKE = 1e-4  # relative: factors on gradients that differ by more are others


class Pair:
    """The same step of both runs."""

    def __init__(self, number: int, ours: Step, theirs: Step, again: Step | None) -> None:
        self.number, self.ours, self.theirs, self.again = number, ours, theirs, again
        self.before: tuple[Step, Step] | None = None
        self.kinds: Sequence[str] = (*INTEGERS, *FORWARD)
        self.factor = FACTOR

    def first(self, is_sharded: bool) -> Place | None:
        """Stage by stage."""
        after = "reduction" if is_sharded else "backward"
        stages: tuple[Callable[[], Place | None], ...] = (
            self._state,
            self._forward,
            self._recomputed,
            self._backward,
            lambda: self._gradients(after),
            lambda: self._clipping(after),
            self._options,
            self._optimizer,
        )
        return next((place for stage in stages if (place := stage())), None)

    def _state(self) -> Place | None:
        """What the run starts from: weights, buffers and what the optimizer remembers."""
        ours, theirs = self.before or (self.ours, self.theirs)
        suffix = "" if self.before else "_before"  # the reference went on from the step before
        for kind in ("weight", *MOMENTS):
            text = "the weights that it starts from" if kind == "weight" else f"{kind} restored"
            records = Records(ours, theirs, None, f"{kind}_before", f"{kind}{suffix}")
            if found := records.unlike(must_have=self.before is not None):
                return self._of_parameters("state", text, found)
            if kind == "weight" and (name := records.untied()):
                return Place(self.number, "state", owner(name), f"{name} is a parameter of its own")
        return None

    def _forward(self) -> Place | None:
        found = next(self._modules(self.kinds), None)
        if found is None:
            return None
        name, slot = found.key.name, found.key.slot
        is_out = found.key.kind in ("out", "out_int")
        if not is_out and not name:
            text = f"the model's input {slot}"
            return self._of_tokens("data", OUTSIDE, text, found, inputs_agree=False)
        if is_out:
            return self._of_tokens("forward", name, _slotted("its output", slot), found)
        text = f"what it hands to {_last(name)} ({slot})"
        return self._of_tokens("forward", owner(name), text, found)

    def _recomputed(self) -> Place | None:
        """What activation checkpointing computes again, against the first time."""
        for key in self.ours.of((AGAIN,)):
            first = self.ours.modules.get(Key("out", key.name, key.slot, key.call))
            if first is not None and (found := between(key, self.ours.modules[key], first, None)):
                text = _slotted("its output, computed again in backward, is another", key.slot)
                return self._of_tokens("backward", key.name, text, found)
        return None

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
        return self._of_tokens("backward", owner(name), text, found)

    def _seen_before(self, key: Key) -> bool:
        """Whether a gradient of another tensor than the model's output came before this one."""
        order = self.theirs.of(BACKWARD)
        earlier = order[: order.index(key)] if key in order else order
        return any(other.name for other in earlier) or bool(key.name and earlier)

    def _gradients(self, stage: str) -> Place | None:
        found = self._records("grad").unlike()
        return self._of_parameters(stage, "its gradient", found) if found else None

    def _clipping(self, stage: str) -> Place | None:
        """Between backward and the optimizer: all are scaled alike by clipping, or some are not."""
        found = self._records("stepped").unlike()
        if not found:
            return None
        factors = {one.key.name: self._factor(one.key.name) for one in found}
        usual = float(np.median(list(factors.values())))
        odd = [one for one in found if abs(factors[one.key.name] - usual) > UNLIKE * abs(usual)]
        names = self._records("stepped").names()
        some = odd if len(found) == len(names) else found
        if some and len(some) <= len(names) // 2 and _module(some) != WHOLE:
            return self._of_parameters(stage, "its gradient, changed after backward", some)
        text = f"the gradient that the optimizer gets: {usual:.4g} times that of the reference"
        return self._of_parameters("optimizer", text, found)

    def _factor(self, name: str) -> float:
        """By what a gradient is longer than the reference's."""
        ours, theirs = (s.parameters.get(Key("stepped", name)) for s in (self.ours, self.theirs))
        if ours is None or theirs is None or ours.shape != theirs.shape:
            return 0.0
        norm = float(np.linalg.norm(theirs[:, -1]))
        return float(np.linalg.norm(ours[:, -1])) / norm if norm else 1.0

    def _records(self, kind: str) -> Records:
        return Records(self.ours, self.theirs, self.again, kind, kind, self.factor)

    def _options(self) -> Place | None:
        mine = options(self.ours)
        found = [
            (name, words)
            for name, theirs in options(self.theirs).items()
            if mine and (words := unlike_options(mine.get(name), theirs))
        ]
        if not found:
            return None
        name, words = found[0]
        more = [name for name, _ in found[1:]]
        stage = "state" if self.before and words.startswith("step ") else "optimizer"
        module = module_of([name, *more])
        return Place(self.number, stage, module, words, where=name, more=more)

    def _optimizer(self) -> Place | None:
        for kind in (*MOMENTS, "update", "weight"):
            if found := self._records(kind).unlike():
                text = "what the step adds to it" if kind == "update" else f"{kind} after the step"
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
            found = between(key, mine, other, again, self.factor)
            if found is None and key in self.ours.broken - self.theirs.broken:
                found = Difference(key, np.arange(0), float("inf"), 0.0, -1)
            if found is not None:
                yield found

    def _of_tokens(
        self, stage: str, module: str, what: str, found: Difference, inputs_agree: bool = True
    ) -> Place:
        token: object = "the padding, where it is not finite"
        rank = -1
        if found.worst >= 0:
            token, rank = self.ours.tokens.places[found.worst], int(self.ours.ranks[found.worst])
        return Place(
            self.number,
            stage,
            module,
            what,
            inputs_agree,
            found.size,
            found.rounding,
            len(found.rows),
            str(token),
            None if rank < 0 else rank,
            self._heads(found),
        )

    def _heads(self, found: Difference) -> list[int]:
        """The heads that differ, where the difference is in what attention hands on."""
        key = Key("heads", found.key.name, found.key.slot, found.key.call)
        ours, theirs = self.ours.modules.get(key), self.theirs.modules.get(key)
        if ours is None or theirs is None or ours.shape != theirs.shape:
            return []
        off = np.nan_to_num(np.abs(ours - theirs)).max(0) / (np.nanmean(np.abs(theirs)) + 1e-30)
        return np.flatnonzero(off > max(off.max() * 0.01, 1e-6)).tolist()

    def _of_parameters(self, stage: str, what: str, found: list[Difference]) -> Place:
        names = [one.key.name for one in found]
        if stage == "reduction":  # backward comes to the last layers first
            names.reverse()
        module = module_of(names)
        inside = [one for one in found if module == WHOLE or one.key.name.startswith(module)]
        worst = max(inside or found, key=lambda one: one.excess)
        name, rows = worst.key.name, worst.rows
        span = f"rows {rows[0]} to {rows[-1]}" if len(rows) > 1 else f"row {rows[0]}"
        known, count = self.theirs.parameters.get(worst.key), self.ours.shards.get(name, 1)
        rank = None
        if count > 1 and known is not None:
            rank = worst.worst // -(-len(known) // count)
        more = [other for other in names if other != name]
        return Place(
            self.number,
            stage,
            module,
            what,
            True,
            worst.size,
            worst.rounding,
            0,
            f"{name}, {len(rows)} of its rows ({span})",
            rank,
            more=more,
        )


def _module(found: Sequence[Difference]) -> str:
    return module_of([one.key.name for one in found])


def _slotted(text: str, slot: str) -> str:
    return f"{text} {slot}" if slot else text


def _last(name: str) -> str:
    return name.rpartition(".")[2]
