"""Going on with an earlier sweep: only what it has no result for, or only what failed in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweep import case_file, launch
from sweep import facts as facts_file
from sweep import folder as sweep_folder
from sweep.errors import RequestError
from sweep.judge import findings
from sweep.machine import Machine
from sweep.plan import Compose, Planned, plan_one
from sweep.slurm import jobs

ASIDE = ".earlier"  # results that a rerun replaces are kept here, inside the sweep's folder


@dataclass(frozen=True)
class Earlier:
    """A sweep that ended, however; `failed_only` runs its failures instead of what is missing."""

    folder: Path
    failed_only: bool = False

    @classmethod
    def asked_for(cls, outputs: Path, sweep_id: str | None, rerun: str | None) -> Earlier | None:
        """From `resume_sweep=` and `rerun=`; None if neither is given; raises RequestError."""
        if rerun not in (None, "failed"):
            raise RequestError(f"rerun={rerun}: say rerun=failed")
        if sweep_id is None and rerun is None:
            return None
        folder = sweep_folder.find(outputs, sweep_id or "latest")
        check_ended(folder)
        if waiting := jobs.active(jobs.recorded(folder).values()):
            raise RequestError(f"{len(waiting)} jobs of sweep {folder.name} still run in Slurm:"
                               f" python -m sweep.collect sweep={folder.name} wait=true first, or"
                               f" scancel {' '.join(waiting)}")  # fmt: skip
        return cls(folder, rerun == "failed")

    @property
    def experiment(self) -> str:
        """The suite that it ran."""
        return str(sweep_folder.read_plan(self.folder)["experiment"])

    def planned(
        self, compose: Compose, machine: Machine, more: Sequence[str] = ()
    ) -> list[Planned]:
        """Its own cases under their own ids, with `more` said of each."""
        found = []
        for case_id in sweep_folder.read_plan(self.folder)["cases"]:
            overrides = [*case_file.read(self.folder / case_id).overrides, *more]
            found.append(_renamed(plan_one(overrides, compose(overrides), machine), case_id))
        return found

    def is_to_run(self, case_id: str) -> bool:
        """Whether the case belongs to what is asked for."""
        facts = facts_file.load(self.folder / case_id)
        has_result = facts is not None and not facts.interrupted
        return has_result and self._failed(case_id) if self.failed_only else not has_result

    def set_aside(self, case_id: str) -> None:
        """Make room for another run of the case; nothing of the old one is lost or still runs."""
        case_dir = self.folder / case_id
        for directory in case_dir.glob("launches/*"):
            launch.end_leftovers(directory)
        if not list(case_dir.glob("launches/*")):  # it only waited
            (case_dir / case_file.NAME).unlink(missing_ok=True)
        else:
            old = self.folder / ASIDE / case_id
            old.mkdir(parents=True, exist_ok=True)
            case_dir.rename(old / str(len(list(old.iterdir())) + 1))

    def _failed(self, case_id: str) -> bool:
        judgement = findings.load(self.folder / case_id)
        return judgement is None or not judgement.verdict.good


def check_ended(folder: Path) -> None:
    """Raise RequestError if the sweep's own process is not known to be gone."""
    if sweep_folder.is_running(folder):
        driver = sweep_folder.read_plan(folder)["driver"]
        raise RequestError(f"sweep {folder.name} still runs ({driver}); end it first")


def _renamed(one: Planned, case_id: str) -> Planned:
    return replace(
        one,
        case=one.case.model_copy(update={"id": case_id}),
        settings=replace(one.settings, case_id=case_id),
    )
