"""The layout and the feature were really on, by the counters that the trainer reports.

A trainer that reports none is shown as inconclusive, which does not fail the case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sweep.checks import diagnostics
from sweep.checks.base import Context, Finding, Outcome
from sweep.facts import Facts, LaunchFacts

Ranks = list[float]
Asked = Mapping[str, Any]


@dataclass(frozen=True)
class Evidence:
    """A counter, when it must show something, and what it says where it does not."""

    counter: str
    expected: Callable[[Asked], bool]
    holds: Callable[[Ranks, Asked], bool]
    otherwise: str
    every_step: bool = True  # else once in the launch is enough


def _all_positive(ranks: Ranks, _asked: Asked) -> bool:
    return all(count > 0 for count in ranks)


def _any_positive(ranks: Ranks, _asked: Asked) -> bool:
    return any(count > 0 for count in ranks)


def _is_on(name: str) -> Callable[[Asked], bool]:
    return lambda asked: bool(asked.get(name))


EVIDENCE = (
    Evidence("params_sharded", lambda asked: asked.get("dp_shard", 1) > 1, _all_positive,
             "a rank holds every parameter whole: nothing was sharded"),
    Evidence("cp_bytes_exchanged", lambda asked: asked["cp"] > 1, _all_positive,
             "a rank exchanged nothing: context parallelism was off"),
    Evidence("cp_sequence_share", lambda asked: asked["cp"] > 1,
             lambda ranks, asked: all(math.isclose(share, 1 / asked["cp"]) for share in ranks),
             "a rank saw another share of the sequence than 1/cp"),
    Evidence("ep_tokens_received", lambda asked: asked["ep"] > 1, _any_positive,
             "no expert received a token from another rank: expert parallelism was off"),
    Evidence("indexer_keys_dropped", _is_on("indexer"), _any_positive,
             "the indexer kept every key"),
    Evidence("flex_attention_calls", lambda asked: asked.get("attention") == "flex", _all_positive,
             "no layer attended by FlexAttention"),
    Evidence("fla_calls", lambda asked: asked.get("linear_attention") == "fla", _all_positive,
             "flash-linear-attention computed no layer"),
    Evidence("recomputed_layers", lambda asked: asked.get("ac", "none") != "none", _all_positive,
             "no layer was recomputed: activation checkpointing was off"),
    Evidence("operators_kept", lambda asked: asked.get("ac") == "selective", _all_positive,
             "a rank kept no result: checkpointing was not selective", every_step=False),
    Evidence("act_offload_bytes", _is_on("act_offload"), _all_positive,
             "no activation was offloaded"),
    Evidence("optim_offload_bytes", _is_on("optim_offload"), _all_positive,
             "no optimizer state was offloaded"),
    Evidence("params_on_cpu", _is_on("full_offload"), _all_positive,
             "no parameter lives on the CPU"),
    Evidence("graphs_captured", _is_on("compile"), _all_positive,
             "the compiler captured no graph", every_step=False),
)  # fmt: skip


def check(facts: Facts, _context: Context) -> Finding:
    """Fail on the first counter that shows a layout or a feature off; inconclusive without it."""
    unseen: list[str] = []
    partly: list[str] = []
    trained = [launch for launch in facts.launches if launch.metrics.steps]
    for launch in trained:
        for evidence in EVIDENCE:
            if not evidence.expected(facts.asked):
                continue
            problem = _problem(evidence, launch, facts.asked)
            partly += _reported_in_part(evidence, launch)
            if problem is None:
                unseen.append(evidence.counter)
            elif problem:
                return _finding(Outcome.FAIL, f"{launch.name}: {problem}", launch.directory)
        wrong = _other_fault(launch, facts.case.fault) or _same_stream(launch)
        wrong = wrong or _wrong_rows(launch, facts.asked) or diagnostics.problem(launch)
        if wrong:
            return _finding(Outcome.FAIL, f"{launch.name}: {wrong}", launch.directory)
    if not trained:  # a crash is no trainer that keeps silent
        return _finding(Outcome.INCONCLUSIVE, "no step was reported")
    if partly:
        return _finding(Outcome.INCONCLUSIVE, partly[0])
    if unseen:
        names = ", ".join(dict.fromkeys(unseen))
        message = f"the trainer does not report {names}"
        return _finding(Outcome.INCONCLUSIVE, message).model_copy(update={"advisory": True})
    return _finding(Outcome.PASS)


def _problem(evidence: Evidence, launch: LaunchFacts, asked: Asked) -> str | None:
    """What is wrong, empty if nothing is; None where the counter is nowhere reported."""
    steps = [
        (s.step, s.counters[evidence.counter])
        for s in launch.metrics.steps
        if evidence.counter in s.counters
    ]
    if not steps:
        return None
    world = asked.get("dp_shard", 1) * asked["cp"]
    for step, ranks in steps:
        if isinstance(ranks, list) and len(ranks) != world:
            return f"{len(ranks)} ranks trained, not {world} ({evidence.counter} at step {step})"
    failed = [step for step, ranks in steps if not evidence.holds(_figures(ranks), asked)]
    if not failed or (len(failed) < len(steps) and not evidence.every_step):
        return ""
    return f"{evidence.otherwise} ({evidence.counter} at step {failed[0]})"


def _reported_in_part(evidence: Evidence, launch: LaunchFacts) -> list[str]:
    """What a counter leaves open that some steps lack: the layout may have been off in them."""
    lacking = [step.step for step in launch.metrics.steps if evidence.counter not in step.counters]
    if not evidence.every_step or len(lacking) in (0, len(launch.metrics.steps)):
        return []
    return [f"{launch.name}: no {evidence.counter} at step {lacking[0]}, one of {len(lacking)}"]


def _other_fault(launch: LaunchFacts, asked: str | None) -> str:
    """Whether another fault than the case's was planted: in a normal run, any."""
    for step in launch.metrics.steps:
        if step.fault != asked:
            return f"fault={step.fault} was planted at step {step.step}, and {asked} asked for"
    return ""


def _same_stream(launch: LaunchFacts) -> str:
    """The first step at which two ranks, which have different tokens, draw the same numbers."""
    for step in launch.metrics.steps:
        streams = step.rng_digests
        twin = next((rank for rank, stream in enumerate(streams) if stream in streams[:rank]), None)
        if twin is not None:
            first = streams.index(streams[twin])
            return f"ranks {first} and {twin} have the same random stream at step {step.step}"
    return ""


def _wrong_rows(launch: LaunchFacts, asked: Asked) -> str:
    """The first step at which two groups of ranks train the same rows, or one group several.

    Where sequences are split, only digests of whole rows tell: two slices may be padding alone.
    """
    groups, size = asked.get("dp_shard", 1), asked["cp"]
    for step in launch.metrics.steps:
        rows = step.sequence_digests or (step.batch_digests if size == 1 else [])
        if len(rows) != groups * size:
            continue
        sharing = [
            [rank for rank, own in enumerate(rows) if own == row] for row in dict.fromkeys(rows)
        ]
        same = next((ranks for ranks in sharing if len(ranks) > size), None)
        if same is not None:
            return f"ranks {_listed(same)} train the same rows at step {step.step}"
        if len(sharing) > groups:
            few = min(sharing, key=len)
            return (
                f"{len(sharing)} groups of ranks train rows of their own at step {step.step}, not"
                f" {groups}: rank {_listed(few)} has others than the rest of its sequence"
            )
    return ""


def _listed(ranks: Iterable[int]) -> str:
    return " and ".join(map(str, ranks))


def _figures(ranks: float | Iterable[float]) -> Ranks:
    return [float(count) for count in ranks] if isinstance(ranks, Iterable) else [float(ranks)]


def _finding(outcome: Outcome, message: str = "", folder: str = "") -> Finding:
    return Finding(check="exercised", outcome=outcome, message=message, folder=folder)
