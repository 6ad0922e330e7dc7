"""What a failed case is held against to find where it parts, and how the case itself is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sweep import trainers
from sweep.case.labels import layout_name
from sweep.case.planned import Planned
from sweep.checks import Outcome, peers
from sweep.errors import RequestError, unknown
from sweep.facts import Facts, Step
from sweep.judge import Judgement
from sweep.plan.references import as_facts
from sweep.schema import (
    ActivationCheckpointing,
    FeatureConf,
    LayoutConf,
    NoiseConf,
    ReplayConf,
    Settings,
)

OFF = 2e-6  # relative: figures of a step that differ by more are off


class Kind(StrEnum):
    """What the reference is."""

    case = "case"  # another case: another layout, a plainer feature, without the fault
    oracle = "oracle"
    uninterrupted = "uninterrupted"  # the same case, of a resumed launch


@dataclass(frozen=True)
class Reference:
    """What a case is held against: the settings of another case, where it is one."""

    kind: Kind
    name: str
    settings: Settings | None = None
    steps: int | None = None  # no more are needed to see the difference


def choose(
    ours: Planned,
    sweep: Mapping[str, Planned],
    facts: Mapping[str, Facts],
    judgement: Judgement | None,
    against: str | None = None,
) -> Reference:
    """What `against` names, else what the first check that failed compared the case with.

    Raises RequestError where there is nothing.
    """
    if against is not None:
        return _named(against, ours, sweep, facts)
    failed = _failed(judgement)
    resumes = len(trainers.of(ours.settings).launches(ours.settings)) > 1
    if failed == "resume" and resumes:
        return Reference(Kind.uninterrupted, "its own uninterrupted run")
    if failed in ("oracle", "export") and _has_oracle(ours):
        return _oracle(ours, facts)
    known = {case_id: facts.get(case_id) or as_facts(case) for case_id, case in sweep.items()}
    candidates = peers.candidates(known[ours.case.id], known)
    whole = [one for one in candidates if not one.launches or peers.is_whole(one)]
    if whole:
        return _case(sweep[whole[0].case.id], ours, facts)
    if (plainer := _plainer(ours.settings)) is not None:
        name = f"{ours.case.arch}-single-none, which the sweep does not have"
        return Reference(Kind.case, name, plainer)
    if _has_oracle(ours):
        return _oracle(ours, facts)
    raise RequestError(f"{ours.case.id} has nothing to be held against; name it: against=CASE")


def _named(
    against: str, ours: Planned, sweep: Mapping[str, Planned], facts: Mapping[str, Facts]
) -> Reference:
    if against == Kind.oracle:
        if not _has_oracle(ours):
            raise RequestError(
                f"against=oracle: trainer {ours.case.trainer} defines nothing for it"
            )
        return _oracle(ours, facts)
    if against == Kind.uninterrupted:
        if len(trainers.of(ours.settings).launches(ours.settings)) < 2:
            raise RequestError(f"against=uninterrupted: {ours.case.id} does not resume")
        return Reference(Kind.uninterrupted, "its own uninterrupted run")
    if against not in sweep or against == ours.case.id:
        others = [case_id for case_id in sweep if case_id != ours.case.id]
        raise RequestError(unknown("reference", against, ["oracle", "uninterrupted", *others]))
    return _case(sweep[against], ours, facts)


def _failed(judgement: Judgement | None) -> str:
    """The check of what is worst, that compares the case with something."""
    if judgement is None:
        return ""
    wrong = [
        finding.check
        for finding in judgement.findings
        if not finding.advisory and finding.outcome is not Outcome.PASS
    ]
    order = ("resume", "parity", "oracle", "export")
    return next((check for check in order if check in wrong), "")


def _case(other: Planned, ours: Planned, facts: Mapping[str, Facts]) -> Reference:
    pair = facts.get(ours.case.id), facts.get(other.case.id)
    steps = None
    if pair[0] is not None and pair[1] is not None:
        steps = first_off(pair[0].steps, pair[1].steps)
    return Reference(Kind.case, other.case.id, other.settings, steps)


def _oracle(ours: Planned, facts: Mapping[str, Facts]) -> Reference:
    own = facts.get(ours.case.id)
    steps = first_off(own.steps, own.oracle.steps) if own and own.oracle else None
    return Reference(Kind.oracle, "the oracle", steps=steps)


def _has_oracle(ours: Planned) -> bool:
    return trainers.of(ours.settings).oracle(ours.settings) is not None


def first_off(ours: Sequence[Step], theirs: Sequence[Step]) -> int | None:
    """The first step whose loss or gradient norm is another one; None if none is."""
    others = {step.step: step for step in theirs}
    for step in sorted(ours, key=lambda one: one.step):
        other = others.get(step.step)
        if other is not None and (
            _is_off(step.loss, other.loss) or _is_off(step.grad_norm, other.grad_norm)
        ):
            return step.step
    return None


def _is_off(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    return not abs(one - other) <= OFF * max(abs(one), abs(other))


def _plainer(settings: Settings) -> Settings | None:
    """The same in one process without a feature or a fault; None where that is the case itself."""
    plain = FeatureConf(name="none", packed=settings.feature.packed)
    is_plain = layout_name(settings.layout) == "single" and settings.feature.name in peers.BASE
    if is_plain and settings.fault is None:
        return None
    return replace(settings, layout=LayoutConf(1, 1, 1, 1), feature=plain, fault=None)


def ours(settings: Settings, steps: int | None, resumes: bool) -> Settings:
    """The case as it is run to be looked into: uncompiled, once, no longer than is needed."""
    feature = replace(settings.feature, compile=False, fullgraph=False, compile_backend=None)
    if not resumes:
        feature = replace(feature, resume_at=[], min_steps=None)
    return _bare(replace(settings, feature=feature), None if resumes else steps)


def theirs(settings: Settings, steps: int | None) -> Settings:
    """The reference, which keeps its activations: what is computed again says nothing more."""
    feature = replace(
        settings.feature,
        compile=False,
        fullgraph=False,
        compile_backend=None,
        ac=ActivationCheckpointing.none,
        act_offload=False,
        resume_at=[],
        min_steps=None,
    )
    return _bare(replace(settings, feature=feature), steps)


def _bare(settings: Settings, steps: int | None) -> Settings:
    return replace(
        settings,
        export=False,
        profile_step=0,
        noise=NoiseConf(repeats=0),
        replay=ReplayConf(),
        steps=min(settings.steps, steps or settings.steps),
    )
