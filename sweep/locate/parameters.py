"""Parameters of two runs: their records, and what the optimizer steps them with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sweep.locate.difference import FACTOR, Difference, between
from sweep.locate.reading import Key, Step

OPTIONS = ("lr", "weight_decay", "beta1", "beta2", "eps", "step")  # as in sweep_taps/parameters.py
MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")  # likewise
CLOSE = 1e-9  # relative: options are numbers that somebody wrote down


@dataclass(frozen=True)
class Records:
    """What two runs, and the rounded one, recorded of parameters under a kind."""

    ours: Step
    theirs: Step
    again: Step | None
    kind: str
    other: str  # the reference's name for it
    factor: float = FACTOR

    def names(self) -> list[str]:
        """The parameters that the reference has it of, in the model's order."""
        return [key.name for key in self.theirs.parameters if key.kind == self.other]

    def unlike(self, must_have: bool = False) -> list[Difference]:
        """Those that differ; a parameter without the record has zeros.

        A run without any such record says nothing, unless it `must_have` it.
        """
        mine = {k.name: x for k, x in self.ours.parameters.items() if k.kind == self.kind}
        if not mine and not must_have:
            return []
        found = [self._between(name, mine.get(name)) for name in self.names()]
        return [one for one in found if one is not None]

    def _between(self, name: str, mine: Any) -> Difference | None:
        values = self.theirs.parameters[Key(self.other, name)]
        if mine is None:
            if self.kind.startswith("weight"):
                return None  # a buffer that only one of the two has
            mine = np.zeros_like(values)
        again = self.again and self.again.parameters.get(Key(self.other, name))
        return between(Key(self.kind, name), mine, values, again, self.factor)

    def untied(self) -> str:
        """A weight that the reference does not have: there it is another's.

        After the step as well: FSDP has tied weights apart while it has them gathered.
        """
        known = set(self.names())
        kinds = (self.kind, "weight")
        names = [{k.name for k in self.ours.parameters if k.kind == kind} for kind in kinds]
        extra = {name for name in names[0] & names[1] if name.endswith(".weight")} - known
        return min(extra) if extra and known else ""


def options(step: Step) -> dict[str, Any]:
    """[`OPTIONS`] numbers by parameter; one that is in no group of the optimizer has none."""
    return {key.name: x for key, x in step.parameters.items() if key.kind == "options"}


def unlike_options(ours: Any, theirs: Any) -> str:
    """How a parameter's options differ; empty where they do not."""
    if ours is None:
        return "it is in no group of the optimizer"
    for name, one, other in zip(OPTIONS, ours, theirs, strict=True):
        is_known = np.isfinite(one) and np.isfinite(other)
        if is_known and abs(one - other) > CLOSE * max(abs(one), abs(other)):
            return f"{name} is {one:g}, in the reference {other:g}"
    return ""
