"""Goes through the steps of two runs, to the first place where they differ."""

from __future__ import annotations

from sweep.locate.difference import FACTOR, LATER
from sweep.locate.pair import Pair
from sweep.locate.place import OUTSIDE, WHOLE, Place
from sweep.locate.reading import FORWARD, INTEGERS, Run, Step
from sweep.locate.tokens import first_unlike


class Search:
    """Two runs, and perhaps a third that is the second but for rounding."""

    def __init__(
        self,
        ours: Run,
        theirs: Run,
        again: Run | None,
        is_sharded: bool,
        begins: int = 1,
        has_rows: bool = True,
    ) -> None:
        self.ours, self.theirs, self.again = ours, theirs, again
        self.is_sharded, self.begins = is_sharded, begins
        self.kinds = (*INTEGERS, *FORWARD) if has_rows else FORWARD

    def first(self) -> Place | None:
        """The first place, step by step; None if nothing differs but by rounding."""
        if self.ours.steps[0] != self.begins:
            text = f"it begins at step {self.ours.steps[0]}, and should at step {self.begins}"
            return Place(self.ours.steps[0], "state", WHOLE, text)
        for number in self.ours.steps:
            if number not in self.theirs.tokens or number not in self.theirs.steps:
                return _unlike_steps(number)
            if (place := _data(number, self.ours, self.theirs)) is not None:
                return place
            has_noise = self.again is not None and number in self.again.steps
            again = self.again.step(number) if self.again and has_noise else None
            pair = Pair(number, self.ours.step(number), self.theirs.step(number), again)
            pair.kinds = self.kinds
            pair.factor = FACTOR if number == self.ours.steps[0] else LATER
            pair.before = self._before(number)
            if (place := pair.first(self.is_sharded)) is not None:
                return place
        return None

    def _before(self, number: int) -> tuple[Step, Step] | None:
        """Our first step, and the one before of a reference that went on from it."""
        if number != self.ours.steps[0] or number - 1 not in self.theirs.steps:
            return None
        return self.ours.step(number), self.theirs.step(number - 1)


def _unlike_steps(number: int) -> Place:
    return Place(number, "data", OUTSIDE, "the reference has no such step", False)


def _data(number: int, ours: Run, theirs: Run) -> Place | None:
    unlike = first_unlike(ours.tokens[number], theirs.tokens[number])
    if unlike is None:
        return None
    document, how = unlike
    return Place(number, "data", OUTSIDE, how, False, where=f"row {document.row}")
