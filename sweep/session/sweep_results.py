"""What becomes of a sweep's cases: each judged, recorded and shown as it ends, all at the end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from sweep import facts as facts_file
from sweep.case.planned import Planned
from sweep.checks import Context
from sweep.facts import Facts
from sweep.files import ConfDirs
from sweep.judge import judge, unavailable, unreadable
from sweep.plan import estimates
from sweep.report import Result, rerun_command
from sweep.session import closing
from sweep.session.aside import set_aside
from sweep.session.notify import Notice
from sweep.session.progress import Progress
from sweep.store import End, Location, Writer


class SweepResults:
    """The results so far of the cases in the sweep's `folder`."""

    def __init__(
        self, planned: Sequence[Planned], folder: Path, location: Location, conf: ConfDirs,
        live: bool,
    ) -> None:  # fmt: skip
        self._planned, self._folder, self._conf = planned, folder, conf
        self.locates = False  # looks into failed comparisons at the end
        self._results: dict[str, Result] = {}
        expected = estimates.seconds(planned, {})  # as recorded runs had it, MLflow takes seconds
        self.progress = Progress([case.case.id for case in planned], live, estimates=expected)
        self._store = Writer(location, folder)
        self.notice: Notice | None = None  # sent at the end

    def started(self, case_id: str) -> None:
        """The case runs: there will be results to record."""
        self.progress.started(case_id)
        self._store.prepare()

    def note_unavailable(self) -> None:
        """The cases that cannot run here are results at once."""
        for case in self._planned:
            if case.unavailable is not None:
                self._keep(self._result(case, None))

    def note_earlier(self, todo: Collection[str]) -> None:
        """The results that a sweep which goes on has already; `todo` are cases to run."""
        for case in self._planned:
            facts, why = facts_file.load_or_why(self._folder / case.case.id)
            if case.case.id in todo:
                continue
            if facts is not None and not facts.interrupted:
                self.conclude(case, facts)
            elif why:
                self._keep(replace(self._result(case, None), judgement=unreadable(case.case, why)))

    def conclude(self, planned: Planned, facts: Facts | None, again: bool = False) -> None:
        """The case has ended, and left these facts; None if it was stopped before it left any.

        `again`: it had ended before, and was started once more to settle a tie.
        """
        if facts is None:
            self.progress.ended(planned.case.id, "interrupted")
            return
        result = self._result(planned, facts)
        if facts.interrupted:
            self.progress.ended(planned.case.id, "interrupted")
        else:
            self._keep(result)
        self._store.record(result, again)

    def set_aside(self, planned: Planned) -> None:
        """Make room for another attempt of a case that has ended; raises MachineryError."""
        case_dir = self._folder / planned.case.id
        self._store.set_aside(case_dir, lambda: set_aside(self._folder, planned))
        self._results.pop(planned.case.id, None)

    def judged_together(self) -> list[Result]:
        """The results so far, each judged with all the others that there are."""
        known = self.context
        return [
            replace(result, judgement=judge(result.facts, known)) if result.facts else result
            for result in self.results
        ]

    def of(self, case_id: str) -> Result | None:
        """The case's result so far."""
        return self._results.get(case_id)

    def close(self, end: End) -> tuple[list[Result], str | None]:
        """Judge them all once more, report and end the sweep's run; see `closing.close`."""
        locates = self.locates and not end.interrupted
        return closing.close(
            self._store, self._folder, self.results, end, self._conf, locates, self.notice
        )

    @property
    def results(self) -> list[Result]:
        """Of the cases that have one, as they were planned."""
        ids = [case.case.id for case in self._planned]
        return [self._results[case_id] for case_id in ids if case_id in self._results]

    @property
    def context(self) -> Context:
        """The facts that there are of the sweep's cases."""
        known = {name: other.facts for name, other in self._results.items() if other.facts}
        return Context(known, conf=self._conf)

    def _result(self, planned: Planned, facts: Facts | None) -> Result:
        judgement = (
            unavailable(planned.case, str(planned.unavailable))
            if facts is None
            else judge(facts, self.context)
        )
        again = rerun_command(planned.overrides, planned.config_dir)
        return Result(judgement, self._folder / planned.case.id, again, facts)

    def _keep(self, result: Result) -> None:
        self._results[result.case.id] = result
        closing.keep([result])
        self.progress.ended(result.case.id, result.judgement.verdict.value)
