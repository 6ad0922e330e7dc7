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
            key=lambda one: (is_own and not _is_beside(one, facts), *_rank(one)),
        )
        return [bases] if bases else []
    plainer = [one for one in others if _is_beside(facts, one) and _feature(one) < _feature(facts)]
    smaller = [one for one in others if _has_plainer_layout(one, facts)]
    found = [
        sorted(plainer, key=_rank),
        sorted(smaller, key=lambda one: (one.case.feature != facts.case.feature, *_rank(one))),
    ]
    if not any(found) and not _is_base(facts):
        found = [sorted(filter(_is_base, others), key=_rank)]
    return [axis for axis in found if axis]


def peers(facts: Facts, sweep: Mapping[str, Facts]) -> list[Facts]:
    """The other cases that train the same, without a planted fault.

    With dropout only cases of one layout do: each rank draws what it drops.
    """
    alike = [one for one in sweep.values() if one is not facts and _is_alike(one, facts)]
    if facts.asked.get("attention_dropout"):
        alike = [one for one in alike if _is_beside(one, facts)]
    return [one for one in alike if one.case.id != facts.case.id]


def referring(facts: Facts, sweep: Mapping[str, Facts]) -> list[Facts]:
    """The cases that may be compared with this one, the plainest first; none with a fault in it."""
    if facts.case.fault is not None:
        return []
    found = [one for one in peers(facts, sweep) if _may_refer(one, facts)]
    return sorted(found, key=_rank)


def plainest(facts: Facts, sweep: Mapping[str, Facts]) -> Facts | None:
    """The plainest case that trains the same, as far; None if that is the case itself."""
    others = [one for one in peers(facts, sweep)
              if is_whole(one) and one.case.steps >= facts.case.steps]  # fmt: skip
    first = min(others, key=_rank, default=None)
    if first is None or (facts.case.fault is None and _rank(facts) < _rank(first)):
        return None
    return first


def other_checkpoint(one: Facts, facts: Facts) -> str:
    """`checkpoint 1a > 2b` where a reference trained another one; empty if it did not."""
    return comparable.unlike(one, facts, (*_axes(one, facts), "data"))


def is_whole(facts: Facts) -> bool:
    """Whether the first launch left every step, finite: a broken case is no reference."""
    return bool(facts.launches) and not finite.problem(facts.launches[0])


def _may_refer(one: Facts, facts: Facts) -> bool:
    """Whether `facts` may be what `one` is compared with."""
    if _is_beside(one, facts):
        return _feature(facts) < _feature(one)
    return _has_plainer_layout(facts, one) or (_is_base(facts) and not _is_base(one))


def _axes(one: Facts, facts: Facts) -> comparable.Axes:
    """A feature may ask for more steps."""
    has_more = one.asked.get("min_steps") or facts.asked.get("min_steps")
    return (*AXES, "steps") if has_more else AXES


def _is_alike(one: Facts, facts: Facts) -> bool:
    is_same = not comparable.unlike(one, facts, (*_axes(one, facts), *comparable.PRODUCED))
    return is_same and one.case.fault is None


def _is_base(facts: Facts) -> bool:
    return facts.case.feature in BASE


def _is_beside(one: Facts, facts: Facts) -> bool:
    return one.case.layout == facts.case.layout


def _has_plainer_layout(one: Facts, facts: Facts) -> bool:
    is_same = one.case.feature == facts.case.feature or (_is_base(one) and _is_base(facts))
    return is_same and not _is_beside(one, facts) and _layout(one) < _layout(facts)


def _layout(facts: Facts) -> tuple[int, int, int, str]:
    asked = facts.asked
    return facts.case.world_size, asked.get("cp", 1), asked.get("ep", 1), facts.case.layout


def _feature(facts: Facts) -> int:
    return BASE.index(facts.case.feature) if _is_base(facts) else len(BASE)


def _rank(facts: Facts) -> tuple[int, int, int, str, int, str]:
    return *_layout(facts), _feature(facts), facts.case.id
