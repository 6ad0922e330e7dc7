"""Runs one case in this process, without a launcher; the trainer's log goes to stdout."""

from __future__ import annotations

from collections.abc import Sequence

from sweep.case.machine import Machine
from sweep.case.planned import Planned
from sweep.run import job
from sweep.session.driver import Session


def run(planned: Planned, machine: Machine, argv: Sequence[str]) -> int:
    """Run the case, record, judge and report it; returns the exit code."""
    session = Session.begin([planned], machine, live=False, argv=argv)
    session.locate(planned.settings.locate)

    def run_it() -> None:
        session.submitted(0, _Ourselves())
        session.started(0)
        settings = session.settings_of(0)
        job.run_case(settings, planned.case, session.folder / planned.case.id, stream=True)
        session.ended(0, "")

    return session.execute(run_it)


class _Ourselves:
    """This process as a job: it is over whenever somebody asks."""

    def ask_to_stop(self) -> None: ...

    def is_over(self) -> bool:
        return True

    def clear(self) -> None: ...
