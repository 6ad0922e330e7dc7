"""A place where two runs part, and the names of modules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

OUTSIDE = "(outside of the model)"
WHOLE = "(the model itself)"


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


def module_of(parameters: Sequence[str]) -> str:
    """The innermost module that has the first of these and those of them in the same layer.

    All of the model, where they are of several layers and of none.
    """
    layers = [layer_of(name) for name in parameters]
    if "" in layers and len(set(layers)) > 2:
        return WHOLE
    return common(
        [name for name, layer in zip(parameters, layers, strict=True) if layer == layers[0]]
    )


def layer_of(name: str) -> str:
    """The layer that a parameter is in, `model.layers.3`; empty for one in none."""
    match = re.match(r"(.*?\.\d+)\.", name)
    return match[1] if match else ""


def common(parameters: Sequence[str]) -> str:
    """The innermost module that has all of these parameters."""
    owners = [name.split(".")[:-1] for name in parameters]
    shared = takewhile(lambda parts: len(set(parts)) == 1, zip(*owners, strict=False))
    return ".".join(parts[0] for parts in shared) or WHOLE


def owner(name: str) -> str:
    """The module that a parameter, or a module, is in."""
    return name.rpartition(".")[0] or WHOLE
