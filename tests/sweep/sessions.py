"""Sessions whose jobs are made up: what becomes of a sweep, without running one."""

from __future__ import annotations

from collections.abc import Callable

from sweep import facts as facts_file
from sweep.facts import Facts
from sweep.session.driver import Session


class Job:
    """Ends when it is asked to."""

    asked = False

    def ask_to_stop(self) -> None:
        self.asked = True

    def is_over(self) -> bool:
        return self.asked

    def clear(self) -> None: ...


def leave_facts(
    session: Session, index: int, make_facts: Callable[..., Facts], **launch: object
) -> None:
    case = session.planned[index].case
    facts_file.save(
        make_facts(**launch).model_copy(update={"case": case}), session.folder / case.id
    )
