"""What happened, as JSON on disk: the source of truth.

What is known of a launch is never changed; settling a tie adds one launch more.

Nothing here judges. Figures that are not finite are kept as Python's JSON writes them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sweep.case.identity import Identity
from sweep.case.labels import Case, plain
from sweep.errors import RequestError, refusing
from sweep.files import write_text
from sweep.schema import Settings

SCHEMA = 2  # 1: without an identity


class TooNewError(RequestError):
    """Facts of a newer version of this package."""


class Step(BaseModel):
    """One optimizer step as the trainer reported it; what else a trainer says is kept as well."""

    model_config = ConfigDict(extra="allow", strict=True)

    step: int = Field(gt=-(2**31), lt=2**31)  # a store keeps no other
    loss: float
    grad_norm: float | None = None  # before clipping; None: the trainer has none
    clip_coefficient: float | None = None  # that gradients were multiplied by
    grad_norm_clipped: float | None = None  # measured after that
    lr: float | None = None
    # that the loss was taken over, in the global batch
    tokens: int | None = Field(default=None, gt=-(2**63), lt=2**63)
    aux_loss: float | None = None  # that balances experts, over the global batch, unscaled
    step_seconds: float | None = None
    step_cpu_seconds: float | None = None  # of the rank that works the most
    peak_memory_gib: float | None = None
    params_moved: float | None = None  # share of the trained tensors that changed in this step
    params_unmoved: list[str] = Field(default_factory=list)  # the first of those that did not
    params_without_gradient: list[str] = Field(default_factory=list)  # the first of the trained
    grad_norm_groups: dict[str, float] = Field(default_factory=dict)
    batch_digests: list[str] = Field(default_factory=list)  # per rank
    sequence_digests: list[str] = Field(default_factory=list)  # per rank, of its rows unsplit
    global_batch_digest: str | None = None  # the same in every layout
    rng_digests: list[str] = Field(default_factory=list)  # per rank
    gradient_digests: list[str] = Field(default_factory=list)  # one a rank, before clipping
    buffers_digest: str | None = None  # of what is saved but not trained
    fault: str | None = None  # planted
    operators: dict[str, int] = Field(default_factory=dict)  # that the first rank ran, if counted
    choices_by_place: list[float] = Field(default_factory=list)  # tokens' choices, by their place
    counters: dict[str, Any] = Field(default_factory=dict)


class Metrics(BaseModel):
    """The steps read from a metrics file, and the lines that are none."""

    steps: list[Step] = Field(default_factory=list)
    bad_lines: list[str] = Field(default_factory=list)  # "line 3: what is wrong: start of line"


class Happening(BaseModel):
    """A graph break or a recompile, with how often each rank logged it."""

    reason: str  # without addresses and numbers, which differ between runs
    frame: str  # file:line; the file as it would be imported
    function: str = ""
    ranks: dict[str, int] = Field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, str]:
        """What makes two of them the same."""
        return self.reason, self.frame

    def __str__(self) -> str:
        where = f"{self.frame} in {self.function}" if self.function else self.frame
        ranks = ", ".join(sorted(self.ranks, key=_by_number))
        return f"{where}: {self.reason} ({'ranks' if len(self.ranks) > 1 else 'rank'} {ranks})"


class CompilerFacts(BaseModel):
    """What the compiler did in a launch."""

    breaks: list[Happening] = Field(default_factory=list)
    recompiles: list[Happening] = Field(default_factory=list)
    graphs: dict[str, int] = Field(default_factory=dict)  # captured, by rank

    @property
    def recompile_count(self) -> int:
        """Recompiles of one rank: where ranks differ, of the one with the most of each."""
        return sum(max(recompile.ranks.values()) for recompile in self.recompiles)


class LaunchFacts(BaseModel):
    """One start of the trainer."""

    name: str
    repeats: str = ""  # the launch that it runs again, to measure how much figures differ
    replays: str = ""  # the case whose choices it makes where scores tie
    keeps_choices: bool = False  # whether it left its close choices, which another may replay
    directory: str  # relative to the case's folder
    argv: list[str]
    first_step: int  # expected
    last_step: int
    exit_code: int | None = None  # negative: killed by that signal
    timed_out: bool = False
    limit_seconds: float
    started: float  # seconds since the epoch
    seconds: float
    cpu_seconds: float | None = None  # of all its processes; None: the server that forked them died
    mode: str = "cold"  # or warm: ranks forked from a process that had imported what they need
    refused: str = ""  # why it was not forked, where it had to start cold
    first_step_seconds: float | None = None  # from the start to the first step reported
    failed_rank: int | None = None  # the rank that failed first
    failure: str = ""  # what it said, one line
    rank_tail: str = ""  # the end of that rank's log
    log_tail: str = ""  # the end of the launcher's log, kept where it failed
    stopped: int = 0  # processes that were still there at the end, and were killed
    stopped_commands: list[str] = Field(default_factory=list)  # their command lines
    metrics: Metrics = Field(default_factory=Metrics)
    compiler: CompilerFacts | None = None  # None: not asked for, or it wrote no log

    @property
    def left_behind(self) -> str:
        """What it left running where it ended by itself, which was killed; empty if nothing."""
        if not self.stopped or self.timed_out or self.exit_code is None:
            return ""
        count = f"{self.stopped} process{'' if self.stopped == 1 else 'es'}"
        shown = ", ".join(dict.fromkeys(self.stopped_commands[:3]))
        return f"{self.name}: left {count} running, which had to be killed: {shown}"

    @property
    def ended_well(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.exit_code == 0 and not self.timed_out


@dataclass(frozen=True)
class JobEnd:
    """Why a job ended without facts of its own, as its launcher knows it."""

    reason: str
    timed_out: bool = False


DIED = JobEnd("the job died without leaving a result")


class OracleFacts(BaseModel):
    """What the oracle says the first launch should have computed (docs/oracle.md)."""

    steps: list[Step] = Field(default_factory=list)
    data: dict[str, Any] = Field(default_factory=dict)  # how the documents differ from the source
    reason: str = ""  # why there is no answer
    is_wrong: bool = False  # whether the reason speaks against the trainer's batches
    seconds: float = 0.0
    cpu_seconds: float | None = None
    is_cached: bool = False  # another case with the same batches had asked


class ExportFacts(BaseModel):
    """What plain transformers makes of the checkpoint that the first launch exported."""

    step: int = 0  # the one after it, whose batch it is given
    loss: float | None = None  # None: it cannot be computed
    turned_picks: int = 0  # that fall as the trainer's loss says
    problems: list[str] = Field(default_factory=list)  # of keys, shapes and files
    reason: str = ""  # why it was not looked at
    seconds: float = 0.0
    cpu_seconds: float | None = None


class Facts(BaseModel):
    """All that is known of a case that ran, or tried to."""

    schema_version: int = Field(default=SCHEMA, ge=1, le=SCHEMA)
    sweep_id: str
    case: Case
    started: float
    seconds: float
    environment: dict[str, str]  # provenance: versions, host, digests of the code and rules used
    identity: Identity | None = None  # None: unknown, as in facts of schema 1
    vocab_size: int | None = None
    # what the trainer was asked for: degrees, and the feature's settings
    asked: dict[str, Any] = Field(default_factory=lambda: {"cp": 1, "ep": 1})
    launches: list[LaunchFacts] = Field(default_factory=list)
    oracle: OracleFacts | None = None  # None: the adapter gives no definitions to ask with
    export: ExportFacts | None = None  # None: nobody asked for one
    attempts: list[str] = Field(default_factory=list)  # how earlier ones of this sweep failed
    error: str | None = None  # what kept the harness from launching, or the job from ending
    interrupted: bool = False

    @property
    def steps(self) -> list[Step]:
        """The steps of the first launch."""
        return self.launches[0].metrics.steps if self.launches else []

    @property
    def own_launches(self) -> list[LaunchFacts]:
        """The whole run and its resumes, without their repeats and replays."""
        return [launch for launch in self.launches if not launch.repeats and not launch.replays]

    @property
    def replays(self) -> list[LaunchFacts]:
        """The whole run with the choices of another case."""
        return [launch for launch in self.launches if launch.replays]

    def runs_of(self, launch: LaunchFacts) -> list[LaunchFacts]:
        """The launch and its repeats."""
        return [launch, *(other for other in self.launches if other.repeats == launch.name)]

    @property
    def compile_seconds(self) -> float | None:
        """What the slowest rank compiled for, in the first launch; None if nobody reports it."""
        by_rank = self._counted("compile_seconds")
        return max(by_rank) if by_rank else None

    @property
    def compile_cache(self) -> tuple[int, int] | None:
        """(cache hits, misses) over all ranks in the first launch; None if not reported.

        Not reported by a backend that keeps nothing, as `eager` on the CPU.
        """
        hits, misses = self._counted("compile_cache_hits"), self._counted("compile_cache_misses")
        return (int(sum(hits)), int(sum(misses))) if hits and misses else None

    def _counted(self, name: str) -> list[float]:
        """A counter of each rank over the first launch's steps; empty if nobody reports it."""
        by_step = [_of_ranks(step.counters[name]) for step in self.steps if name in step.counters]
        return [sum(steps) for steps in zip_longest(*by_step, fillvalue=0.0)]


def _of_ranks(value: Any) -> list[float]:
    """A counter by rank; a trainer may write one number for all, or what is no number."""
    values = value if isinstance(value, list) else [value]
    return [
        float(value) for value in values if isinstance(value, (int, float)) and math.isfinite(value)
    ]


def _by_number(rank: str) -> tuple[int, str]:
    return (int(rank), "") if rank.isdigit() else (1 << 30, rank)


def save(facts: Facts, case_dir: Path) -> None:
    """Write facts.json, by rename. Not pydantic's own JSON: that turns NaN into null."""
    write_text(case_dir / "facts.json", json.dumps(facts.model_dump(), indent=1) + "\n")


def load(case_dir: Path) -> Facts | None:
    """Read facts.json; None if the case left none; raises RequestError for one that is damaged."""
    path = case_dir / "facts.json"
    return parse(path.read_bytes(), path) if path.is_file() else None


def parse(text: str | bytes, where: object) -> Facts:
    """Facts from JSON; raises RequestError for text that is damaged, or of a newer schema.

    Facts of an older schema are read as they are: what they lack is unknown.
    """
    if (version := _schema_of(text)) > SCHEMA:
        raise TooNewError(
            f"{where}: its schema {version} is newer than {SCHEMA}, which this version reads:"
            " update trainer-sweep"
        )
    with refusing(where, "move it away, and the case has no result"):
        facts = Facts.model_validate_json(text)
    return facts.model_copy(update={"schema_version": SCHEMA})


def _schema_of(text: str | bytes) -> int:
    """The schema version that the text names; 0 where it names none."""
    try:
        return int(json.loads(text)["schema_version"])
    except (ValueError, KeyError, TypeError):
        return 0


def load_or_why(case_dir: Path) -> tuple[Facts | None, str]:
    """The facts, or why they cannot be read: a damaged file concerns one case, not the sweep.

    Raises TooNewError: what a newer version has recorded is not to be judged or run again by this.
    """
    try:
        return load(case_dir), ""
    except TooNewError:
        raise
    except (RequestError, OSError) as error:
        return None, str(error)


def asked_of(settings: Settings) -> dict[str, Any]:
    """What the trainer must show that it did: degrees and features; and what it has none of."""
    layout, values = settings.layout, plain(settings)
    degrees = {"dp_shard": layout.dp_shard, "cp": layout.cp, "ep": layout.ep}
    more = {"indexer": settings.arch.indexer, "not_shown": settings.trainer.not_shown,
            "attention_dropout": settings.attention_dropout}  # fmt: skip
    return {**values["feature"], **degrees, **more}
