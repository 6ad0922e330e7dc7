"""A sweep as asked for on the command line -> the cases that it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, ListConfig, OmegaConf

from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import RequestError, unknown
from sweep.plan import (
    Compose,
    draws,
    estimates,
    listing,
    plan,
    references,
    shards,
    suite,
    varying_keys,
)
from sweep.plan.earlier import Earlier
from sweep.report.detection import Conclusion, Detection
from sweep.store import durations


@dataclass(frozen=True)
class Request:
    """What is said of the sweep as a whole, apart from its cases."""

    experiment: str
    rows: Sequence[Mapping[str, Any]]
    shard: tuple[int, int] | None
    earlier: Earlier | None
    plan_only: bool
    detach: bool
    outputs: Path
    caught_by: Mapping[str, Sequence[str]] = field(default_factory=dict)
    references: bool = False
    named: Sequence[str] | None = None
    draws: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    count: int | None = None
    locate: bool = False

    @classmethod
    def of(cls, config: DictConfig, detachable: bool = False) -> Request:
        """From the config that Hydra composed of what does not vary; raises RequestError.

        `detachable`: whether the launcher's jobs can go on without us.
        """
        chosen = config.suite
        if chosen is not None and not chosen.rows and not chosen.draws:
            raise RequestError(f"suite={chosen.name}: it has no rows")
        outputs = Path(config.outputs)
        earlier = Earlier.asked_for(outputs, config.resume_sweep, config.rerun, config.host_gone)
        if earlier is not None and config.references:
            raise RequestError("references=true: a sweep that is resumed keeps its cases")
        if earlier is not None and config.cases is not None:
            raise RequestError("cases=...: a sweep that is resumed keeps its cases")
        fallback = "adhoc" if earlier is None else earlier.experiment
        drawn = {} if chosen is None else OmegaConf.to_container(chosen.draws)
        named, count = _asked_of(config.cases, bool(drawn))
        request = cls(
            experiment=fallback if chosen is None else chosen.name,
            rows=[] if chosen is None else OmegaConf.to_container(chosen.rows),  # type: ignore[arg-type]  # a list, by the schema
            shard=None if config.shard is None else shards.parse(str(config.shard)),
            earlier=earlier,
            plan_only=config.plan,
            detach=config.detach,
            outputs=outputs,
            references=config.references,
            named=named,
            draws=drawn,  # type: ignore[arg-type]
            seed=config.seed,
            count=count,
            locate=config.locate,
            caught_by={} if chosen is None else OmegaConf.to_container(chosen.caught_by),  # type: ignore[arg-type]
        )
        if request.detach and not detachable:
            raise RequestError("detach=true: add hydra/launcher=slurm, whose jobs go on without us")
        at_ends = config.launch.retries or config.launch.stop_after_alike or config.notify
        if request.detach and at_ends:
            raise RequestError(
                "detach=true: nobody is there to look at cases as they end; leave out"
                " launch.retries, launch.stop_after_alike and notify"
            )
        if request.detach and request.conclusion is not None:
            raise RequestError("detach=true: this suite is about all its cases, and waits for them")
        return request

    @property
    def conclusion(self) -> Conclusion | None:
        """What a suite of planted faults makes of its results; None for any other."""
        return Detection(self.caught_by).conclude if self.caught_by else None

    def cases(
        self, overrides: Sequence[Override], compose: Compose, machine: Machine
    ) -> list[Planned]:
        """The cases of this request, or of its shard."""
        chosen = suite.choices(overrides)
        if self.earlier is not None and not self.rows and not self.draws:
            return self.earlier.narrowed(chosen, compose, machine, self.shard)
        # A suite may have nothing but what it draws.
        narrowed = suite.combinations(chosen, self.rows) if self.rows or not self.draws else []
        # Of the whole suite too: narrowing it must not change its cases' ids.
        varying = varying_keys(narrowed, suite.combinations({}, self.rows))
        planned = plan(narrowed, compose, machine, varying) if narrowed else []
        planned += self._drawn(chosen, compose, machine) if self.draws else []
        if self.rows or self.draws:
            planned = [
                case for case in planned if suite.is_chosen(case.case, case.overrides, chosen)
            ]
            if not planned:
                raise suite.nothing(chosen)
        if self.named is not None:
            planned = _named(planned, self.named)
        if self.references:
            planned = references.added(
                planned, lambda words: plan([words], compose, machine, varying)[0]
            )
        if self.earlier is not None:
            return self.earlier.its_own(planned, self.shard)
        if self.shard is not None:
            return shards.select(planned, self.seconds(planned), self.shard)
        return planned

    def _drawn(self, chosen: suite.Choices, compose: Compose, machine: Machine) -> list[Planned]:
        """Of what the suite draws, the part that the seed has."""
        array = suite.combinations(chosen, draws.rows(self.draws))
        return draws.dealt(array, lambda part: plan(part, compose, machine), self.seed, self.count)

    def seconds(self, planned: Sequence[Planned]) -> dict[str, float]:
        """Case id -> estimate."""
        if not planned:
            return {}
        device = planned[0].case.device
        is_shard = self.shard is not None
        recorded = durations.of_cases(self.outputs, device, estimates.cut_off(), is_shard)
        return estimates.seconds(planned, recorded)

    def show(self, planned: Sequence[Planned], expected: listing.Expected) -> None:
        """Print the plan; `expected` says how long its launcher takes."""
        if self.earlier is not None:
            planned = [case for case in planned if self.earlier.is_to_run(case.case.id)]
            print(f"{len(planned)} cases of sweep {self.earlier.folder.name} are to run")
        listing.show(planned, self.seconds(planned), expected)


def _asked_of(cases: Any, draws: bool) -> tuple[list[str] | None, int | None]:
    """`cases=` as ids, or as a number; raises RequestError for anything else."""
    if cases is None:
        return None, None
    if isinstance(cases, int) and not isinstance(cases, bool):
        if not draws:
            raise RequestError(f"cases={cases}: a number is for suites that draw; name cases by id")
        return None, cases
    if isinstance(cases, ListConfig) and all(isinstance(name, str) for name in cases):
        return list(cases), None
    raise RequestError(f"cases={cases}: say [ID,...], or a number for a suite that draws")


def _named(planned: Sequence[Planned], names: Sequence[str]) -> list[Planned]:
    """The cases with these ids; raises RequestError for an id that none has."""
    known = {case.case.id: case for case in planned}
    for name in names:
        if name not in known:
            raise RequestError(f"cases: {unknown('case', name, known)}; plan=true lists them")
    return [case for case in planned if case.case.id in names]
