"""Which cases of the same sweep a case is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from sweep.checks import comparable, finite
from sweep.facts import Facts

BASE = ("none", "base", "none_resume", "resume", "none_resume_twice", "resume_twice")
"""What runs a layout as it is; a resume does by its first launch."""

AXES = ("layout", "feature", "fault")
"""In what a case and its reference may differ."""


def candidates(facts: Facts, sweep: Mapping[str, Facts]) -> list[Facts]:
    """What the case may be compared with, the best first; empty if it is the reference itself."""
    return list(chain.from_iterable(axes(facts, sweep)))


def axes(facts: Facts, sweep: Mapping[str, Facts]) -> list[list[Facts]]:
    """What the case may be compared with along each axis that has any, the best first.

    The axes are the same layout with a plainer feature, and the same feature in a plainer layout:
    one process, else fewer ranks, and no sequence split. A feature that has neither is compared
    with the plainest base case. A planted fault is compared as its case would be, and with the
    reference itself where that is its case.
    """
    others = peers(facts, sweep)
    if facts.case.fault is not None:
        is_own = not _is_base(facts)
        bases = sorted(
            filter(_is_base, others),
            key=lambda other: (is_own and not _is_beside(other, facts), *_rank(other)),
        )
        return [bases] if bases else []
    plainer = [
        other for other in others if _is_beside(facts, other) and _feature(other) < _feature(facts)
    ]
    smaller = [other for other in others if _has_plainer_layout(other, facts)]
    along = [
        sorted(plainer, key=_rank),
        sorted(
            smaller, key=lambda other: (other.case.feature != facts.case.feature, *_rank(other))
        ),
    ]
    if not any(along) and not _is_base(facts):
        along = [sorted(filter(_is_base, others), key=_rank)]
    return [axis for axis in along if axis]


def peers(facts: Facts, sweep: Mapping[str, Facts]) -> list[Facts]:
    """The other cases that train the same, without a planted fault.

    With dropout only cases of one layout do: each rank draws what it drops.
    """
    alike = [other for other in sweep.values() if other is not facts and _is_alike(other, facts)]
    if facts.asked.get("attention_dropout"):
        alike = [other for other in alike if _is_beside(other, facts)]
    return [other for other in alike if other.case.id != facts.case.id]


def referring(facts: Facts, sweep: Mapping[str, Facts]) -> list[Facts]:
    """The cases that may be compared with this one, the plainest first; none with a fault in it."""
    if facts.case.fault is not None:
        return []
    candidates = [other for other in peers(facts, sweep) if _may_refer(other, facts)]
    return sorted(candidates, key=_rank)


def plainest(facts: Facts, sweep: Mapping[str, Facts]) -> Facts | None:
    """The plainest case that trains the same, as far; None if that is the case itself."""
    others = [other for other in peers(facts, sweep)
              if is_whole(other) and other.case.steps >= facts.case.steps]  # fmt: skip
    first = min(others, key=_rank, default=None)
    if first is None or (facts.case.fault is None and _rank(facts) < _rank(first)):
        return None
    return first


def other_checkpoint(other: Facts, facts: Facts) -> str:
    """`checkpoint 1a > 2b` where a reference trained another one; empty if it did not."""
    return comparable.unlike(other, facts, (*_axes(other, facts), "data"))


def is_whole(facts: Facts) -> bool:
    """Whether the first launch left every step, finite: a broken case is no reference."""
    return bool(facts.launches) and not finite.problem(facts.launches[0])


def _may_refer(other: Facts, facts: Facts) -> bool:
    """Whether `facts` may be what `other` is compared with."""
    if _is_beside(other, facts):
        return _feature(facts) < _feature(other)
    return _has_plainer_layout(facts, other) or (_is_base(facts) and not _is_base(other))


def _axes(other: Facts, facts: Facts) -> comparable.Axes:
    """A feature may ask for more steps."""
    has_more = other.asked.get("min_steps") or facts.asked.get("min_steps")
    return (*AXES, "steps") if has_more else AXES


def _is_alike(other: Facts, facts: Facts) -> bool:
    is_same = not comparable.unlike(other, facts, (*_axes(other, facts), *comparable.PRODUCED))
    return is_same and other.case.fault is None


def _is_base(facts: Facts) -> bool:
    return facts.case.feature in BASE


def _is_beside(other: Facts, facts: Facts) -> bool:
    return other.case.layout == facts.case.layout


def _has_plainer_layout(other: Facts, facts: Facts) -> bool:
    is_same = other.case.feature == facts.case.feature or (_is_base(other) and _is_base(facts))
    return is_same and not _is_beside(other, facts) and _layout(other) < _layout(facts)


def _layout(facts: Facts) -> tuple[int, int, int, str]:
    asked = facts.asked
    return facts.case.world_size, asked.get("cp", 1), asked.get("ep", 1), facts.case.layout


def _feature(facts: Facts) -> int:
    return BASE.index(facts.case.feature) if _is_base(facts) else len(BASE)


def _rank(facts: Facts) -> tuple[int, int, int, str, int, str]:
    return *_layout(facts), _feature(facts), facts.case.id
