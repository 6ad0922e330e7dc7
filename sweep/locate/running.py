"""Runs a case and its reference with taps on, all from one warm server."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sweep import trainers
from sweep.errors import MachineryError
from sweep.facts import LaunchFacts
from sweep.files import write_json
from sweep.locate import references
from sweep.locate.references import Kind, Reference
from sweep.run import consult
from sweep.run.job import CaseLaunches, checkpoint_of
from sweep.schema import Settings
from sweep.trainers.base import Command, Launch, in_folders

ROUNDING = {"SWEEP_TAPS_ROUNDING": "1"}  # as in sweep_taps/rounding.py
OUTER = {"SWEEP_TAPS_OUTER": "1"}  # as in sweep_taps/modules.py


@dataclass(frozen=True)
class Taps:
    """The folders of taps of a case, its reference, and the reference rounded otherwise."""

    ours: Path
    theirs: Path
    again: Path
    begins: int = 1  # the step at which the case should begin
    problems: tuple[str, ...] = ()  # of the case's documents, as the oracle sees them


class Runs:
    """The launches of one look into a case, in a folder of their own."""

    def __init__(self, settings: Settings, reference: Reference, folder: Path) -> None:
        self.reference, self.folder = reference, folder.resolve()
        self.resumes = reference.kind is Kind.uninterrupted
        self.ours = references.ours(settings, reference.steps, self.resumes)
        self.model = None
        if trainers.of(settings).needs_checkpoint(settings):
            self.model = checkpoint_of(settings)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def taps(self) -> Taps:
        """Run what is needed; raises MachineryError for a launch that leaves no step."""
        with CaseLaunches(self.ours, self.folder).server() as server:
            if self.reference.kind is Kind.oracle:
                return self._beside_oracle(server)
            if self.resumes:
                return self._resumed(server)
            return self._beside_case(server)

    def compiled(self, settings: Settings) -> Path:
        """The case as it is, compiled, with its layers looked at from outside."""
        whole = replace(settings, steps=self.ours.steps, export=False)
        with CaseLaunches(whole, self.folder).server() as server:
            return self._run(whole, "compiled", 0, server, OUTER)

    def _beside_case(self, server: str | None) -> Taps:
        settings = self.reference.settings
        assert settings is not None
        theirs = references.theirs(settings, self.reference.steps)
        with ThreadPoolExecutor(3) as pool:
            runs = (
                pool.submit(self._run, self.ours, "case", 0, server, {}),
                pool.submit(self._run, theirs, "reference", 0, server, {}),
                pool.submit(self._run, theirs, "rounding", 0, server, ROUNDING),
            )
            ours, other, again = (run.result() for run in runs)
            return Taps(ours, other, again)

    def _resumed(self, server: str | None) -> Taps:
        """The whole run is the reference of the last launch; a repeat shows what differs anyway."""
        with ThreadPoolExecutor(2) as pool:
            again = pool.submit(self._run, self.ours, "rounding", 0, server, {})
            whole = self._run(self.ours, "case", 0, server, {})
            launches = trainers.of(self.ours).launches(self.ours)
            for number in range(1, len(launches)):
                resumed = self._run(self.ours, "case", number, server, {})
            return Taps(resumed, whole, again.result(), launches[-1].first_step)

    def _beside_oracle(self, server: str | None) -> Taps:
        ours = self._run(self.ours, "case", 0, server, {})
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(self._oracle, ours, "reference", server, {})
            again = pool.submit(self._oracle, ours, "rounding", server, ROUNDING)
            theirs, problems = first.result()
            return Taps(ours, theirs, again.result()[0], problems=tuple(problems))

    def _run(
        self,
        settings: Settings,
        name: str,
        number: int,
        server: str | None,
        env: dict[str, str],
    ) -> Path:
        """Start one of a case's launches; returns its folder of taps."""
        trainer = trainers.of(settings)
        launches = in_folders(trainer.launches(settings), self.folder / name)
        launch, directory = launches[number]
        directory.mkdir(parents=True)
        command = trainer.command(settings, launch, directory, self.model)
        taps = directory / consult.TAPS
        asked = replace(command, env=command.env | _asked(taps, launch) | env)
        cases = CaseLaunches(settings, self.folder / name)
        return _left(cases.run(launch, asked, directory, server), directory, taps)

    def _oracle(
        self, ours: Path, name: str, server: str | None, env: dict[str, str]
    ) -> tuple[Path, list[str]]:
        """Let the oracle train on the batches of the case; also what is wrong with them."""
        folder = self.folder / name
        folder.mkdir()
        taps, chosen = folder / consult.TAPS, folder / "settings.json"
        write_json(chosen, trainers.of(self.ours).oracle(self.ours))
        start = CaseLaunches(self.ours, folder).runs_oracle(server)

        def run(launch: Launch, command: Command, directory: Path) -> LaunchFacts:
            more = _asked(taps, launch) | env
            return start(launch, replace(command, env=command.env | more), directory)

        words = [str(self.model), str(ours), "--settings", str(chosen)]
        words += ["--device", self.ours.device.value]
        done, said = consult.asked("oracle", words, folder, self.ours.steps, run)
        if said is None:
            raise MachineryError(consult.failure(done, str(folder)))
        data: dict[str, Any] = said["data"]
        return taps, data.get("problems", [])


def _asked(taps: Path, launch: Launch) -> dict[str, str]:
    return {
        consult.VARIABLE: str(taps),
        "SWEEP_TAPS_INSIDE": "1",  # as in sweep_taps/watching.py
        "SWEEP_TAPS_FIRST_STEP": str(launch.first_step),
    }


def _left(done: LaunchFacts, directory: Path, taps: Path) -> Path:
    """The taps; raises MachineryError where there are none."""
    if any(taps.glob("inside-*-*.pt")):
        return taps
    if done.ended_well:
        raise MachineryError(
            f"the trainer shows nothing of its inside in {directory}: `import sweep_taps` in it,"
            " as docs/locate.md says"
        )
    why = done.failure or done.refused or f"exit code {done.exit_code}"
    raise MachineryError(f"a launch ended before its first step ({why}); see {directory}")
