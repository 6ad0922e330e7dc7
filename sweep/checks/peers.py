"""Which case of the same sweep a case is compared with."""

from __future__ import annotations

from collections.abc import Mapping

from sweep.checks import comparable, finite
from sweep.facts import Facts

BASE = ("none", "base", "none_resume", "resume", "none_resume_twice", "resume_twice")
"""What runs a layout as it is; a resume does by its first launch."""

AXES = ("layout", "feature", "fault")
"""In what a case and its reference may differ."""


def candidates(facts: Facts, sweep: Mapping[str, Facts]) -> list[Facts]:
    """What the case may be compared with, the best first; empty if it is the reference itself.

    A feature is compared with the base case of its layout. Base cases are compared with the one
    that needs the least: one process, else the fewest ranks, and no sequence split. A planted fault
    is compared as its case would be, and with the reference itself where that is its case. With
    dropout only cases of one layout are alike: each rank draws what it drops.
    """
    bases = sorted((one for one in sweep.values() if _is_alike(one, facts)), key=_rank)
    others = [one for one in bases if one.case.id != facts.case.id]
    if facts.asked.get("attention_dropout"):
        others = [one for one in others if one.case.layout == facts.case.layout]
    if facts.case.feature not in BASE:
        return sorted(others, key=lambda one: one.case.layout != facts.case.layout)
    if facts.case.fault is not None:
        return others
    return [one for one in others if _rank(one) < _rank(facts)]


def other_checkpoint(one: Facts, facts: Facts) -> str:
    """`checkpoint 1a > 2b` where a reference trained another one; empty if it did not."""
    return comparable.unlike(one, facts, (*_axes(one, facts), "data"))


def is_whole(facts: Facts) -> bool:
    """Whether the first launch left every step, finite: a broken case is no reference."""
    return bool(facts.launches) and not finite.problem(facts.launches[0])


def _axes(one: Facts, facts: Facts) -> comparable.Axes:
    """A feature may ask for more steps."""
    has_more = one.asked.get("min_steps") or facts.asked.get("min_steps")
    return (*AXES, "steps") if has_more else AXES


def _is_alike(one: Facts, facts: Facts) -> bool:
    is_same = not comparable.unlike(one, facts, (*_axes(one, facts), *comparable.PRODUCED))
    return is_same and one.case.feature in BASE and one.case.fault is None


def _rank(facts: Facts) -> tuple[int, int, int, int, str]:
    case, asked = facts.case, facts.asked
    feature = BASE.index(case.feature)
    return case.world_size, asked.get("cp", 1), asked.get("ep", 1), feature, case.id
