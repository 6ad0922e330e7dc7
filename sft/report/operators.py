"""Which operators a step runs, by torch's profiler: the work of a step, exactly.

Time is lengthened by whatever else a machine does; the count of operators is not, and its names
tell a fast kernel from a slow path.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.profiler import ProfilerActivity, profile

AUTOGRAD = "autograd::"


@contextmanager
def counted(is_asked: bool) -> Iterator[dict[str, int]]:
    """Fill the dictionary with how often each operator ran inside, by name; `{}` unless asked."""
    counts: dict[str, int] = {}
    if not is_asked:
        yield counts
        return
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        yield counts
    counts |= {
        event.key: event.count
        for event in profiler.key_averages()
        if "::" in event.key and not event.key.startswith(AUTOGRAD)
    }
