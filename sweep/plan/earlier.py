"""Resuming an earlier sweep: only the cases without a result, or only those that failed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweep import commands
from sweep import facts as facts_file
from sweep.case import file as case_file
from sweep.case import folder as sweep_folder
from sweep.case.folder import readable
from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.errors import RequestError
from sweep.judge import findings
from sweep.plan import Compose, checked, resolved, suite, varying_keys
from sweep.slurm import jobs

Shard = tuple[int, int] | None


@dataclass(frozen=True)
class Earlier:
    """A sweep that ended, however; `failed_only` runs its failures instead of what is missing."""

    folder: Path
    failed_only: bool = False
    reruns: bool = True  # False: its jobs still run elsewhere, and are only collected

    @classmethod
    def asked_for(
        cls, outputs: Path, sweep_id: str | None, rerun: str | None, host_gone: bool = False
    ) -> Earlier | None:
        """From `resume_sweep=` and `rerun=`; None if neither is given; raises RequestError."""
        if rerun not in (None, "failed"):
            raise RequestError(f"rerun={rerun}: say rerun=failed")
        if sweep_id is None and rerun is None:
            return None
        folder = sweep_folder.find(outputs, sweep_id or "latest")
        check_ended(folder, host_gone)
        if waiting := jobs.active(folder):
            words = [f"sweep={folder.name}", f"outputs={outputs}", "wait=true"]
            raise RequestError(
                f"{len(waiting)} jobs of sweep {folder.name} still run in Slurm:"
                f" {commands.spelled('sweep.collect', words)} first, or"
                f" scancel {' '.join(waiting)}"
            )
        return cls(folder, rerun == "failed")

    @property
    def experiment(self) -> str:
        """The suite that it ran."""
        return str(sweep_folder.read_plan(self.folder)["experiment"])

    def narrowed(
        self, chosen: suite.Choices, compose: Compose, machine: Machine, shard: Shard = None
    ) -> list[Planned]:
        """Its own cases under their own ids, as far as the choices allow; raises RequestError."""
        self._check_shard(shard)
        files = readable(self._cases, self._file)
        by_variant = varying_keys([file.overrides for file in files.values()])
        varying = {key for keys in by_variant.values() for key in keys}
        said = {case_id: _said(file, chosen, varying) for case_id, file in files.items()}
        cases = [
            _renamed(resolved(overrides, compose(overrides), machine), case_id)
            for case_id, overrides in said.items()
            if overrides is not None
        ]
        if not cases:
            words = " ".join(f"{key}={','.join(values)}" for key, values in chosen.items())
            raise RequestError(f"nothing in sweep {self.folder.name} matches {words}")
        return checked(cases)

    def its_own(self, planned: Sequence[Planned], shard: Shard = None) -> list[Planned]:
        """Those of a suite's cases that it has; raises RequestError if it was of something else."""
        self._check_shard(shard)
        cases = [case for case in planned if case.case.id in self._cases]
        others = [case.case.id for case in planned if case.case.id not in self._cases]
        if not cases or (others and shard is None):
            raise RequestError(
                f"sweep {self.folder.name} has no case {others[0]}, and {len(others) - 1} others:"
                " leave suite=... out to resume the cases that it has"
            )
        return cases

    def with_the_rest(self, planned: Sequence[Planned]) -> list[Planned]:
        """All of its cases, of which `planned` are resumed: the sweep is reported as a whole."""
        known = {case.case.id: case for case in planned}
        for case_id in self._cases:
            with contextlib.suppress(RequestError):  # its folder was removed
                known.setdefault(case_id, self._file(case_id).planned)
        return [known[case_id] for case_id in self._cases if case_id in known]

    def is_to_run(self, case_id: str) -> bool:
        """Whether the case belongs to what is asked for."""
        facts, _ = facts_file.load_or_why(self.folder / case_id)  # a damaged file is no result
        has_result = facts is not None and not facts.interrupted
        return has_result and self._failed(case_id) if self.failed_only else not has_result

    @property
    def _cases(self) -> list[str]:
        return list(sweep_folder.read_plan(self.folder)["cases"])

    def _file(self, case_id: str) -> case_file.CaseFile:
        """What the case was; of one set aside as we were killed, what it was before."""
        before = sorted(
            (self.folder / sweep_folder.ASIDE / case_id).glob("*"), key=lambda path: int(path.name)
        )
        if before and not case_file.exists(self.folder / case_id):
            return case_file.read(before[-1])
        return case_file.read(self.folder / case_id)

    def _check_shard(self, shard: Shard) -> None:
        if shard is None:
            return
        said = f"shard={shard[0]}/{shard[1]}"
        if said not in sweep_folder.read_plan(self.folder)["argv"]:
            raise RequestError(f"{said}: sweep {self.folder.name} is not that shard; leave it out")

    def _failed(self, case_id: str) -> bool:
        try:
            judgement = findings.load(self.folder / case_id)
        except RequestError:
            return True
        return judgement is None or not judgement.verdict.good


def check_ended(folder: Path, host_gone: bool = False) -> None:
    """Raise RequestError if the sweep's own process may still run; `host_gone`: not elsewhere."""
    if not sweep_folder.is_running(folder):
        return
    driver = str(sweep_folder.read_plan(folder)["driver"])
    if not sweep_folder.is_elsewhere(driver):
        raise RequestError(f"sweep {folder.name} still runs ({driver}); end it first")
    if not host_gone:
        raise RequestError(
            f"sweep {folder.name} may still run on another host ({driver}): end it there; if that"
            " host is gone, add host_gone=true (a day after the start it counts as gone)"
        )


def _said(
    file: case_file.CaseFile, chosen: suite.Choices, varying: Collection[str]
) -> list[str] | None:
    """A case's overrides after the command line; None if it excludes the case.

    A key that varies in the sweep is a filter; any other gets the new value.
    """
    said = dict(word.split("=", 1) for word in file.overrides if "=" in word)
    for key, values in chosen.items():
        is_label = key in suite.NARROWED
        own = said.get(key, str(getattr(file.case, key) or "null") if is_label else None)
        if own is not None and suite.meant(own) in map(suite.meant, values):
            continue
        if key == "layout" and file.case.layout in values:
            continue
        if is_label or key in varying:
            return None
        if len(values) > 1:
            raise RequestError(f"{key}: a resumed sweep keeps its cases; give one value")
        said[key] = values[0]
    return [f"{key}={value}" for key, value in said.items()]


def _renamed(planned: Planned, case_id: str) -> Planned:
    return replace(
        planned,
        case=planned.case.model_copy(update={"id": case_id}),
        settings=replace(planned.settings, case_id=case_id),
    )
