"""Cases -> job arrays: one for each combination of nodes, GPUs and CPUs, within Slurm's limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.schema import Settings


@dataclass(frozen=True, order=True)
class Shape:
    """What a job asks for."""

    nodes: int
    gpus_per_node: int
    cpus: int  # on each node


@dataclass(frozen=True)
class Array:
    """Jobs of one shape, by their place in the sweep."""

    shape: Shape
    indices: tuple[int, ...]


def shape_of(settings: Settings) -> Shape:
    """The nodes and GPUs of the layout, and one CPU a rank."""
    layout = settings.layout
    return Shape(layout.nodes, settings.gpus_per_node, layout.ranks_per_node)


def arrays(shapes: Sequence[Shape], limit: int) -> list[Array]:
    """Every job once, in arrays of at most `limit`."""
    return [
        Array(shape, part)
        for shape in dict.fromkeys(shapes)
        for part in _parts([index for index, other in enumerate(shapes) if other == shape], limit)
    ]


def _parts(indices: Sequence[int], limit: int) -> list[tuple[int, ...]]:
    return [tuple(indices[first : first + limit]) for first in range(0, len(indices), limit)]
