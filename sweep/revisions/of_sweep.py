"""A case of an earlier sweep with what it is compared with, as a trial."""

from __future__ import annotations

from pathlib import Path

from sweep.case import file as case_file
from sweep.case import folder as sweep_folder
from sweep.case.folder import claim, planned_in
from sweep.case.planned import Planned
from sweep.checks import peers
from sweep.errors import RequestError, unknown
from sweep.files import ConfDirs
from sweep.plan.references import as_facts
from sweep.revisions.trial import CASES, Trial
from sweep.trainers.base import python_of

SEARCHES = "bisect"  # in the folder of results


def find(outputs: Path, case_id: str, sweep_id: str) -> list[Planned]:
    """What the case is compared with in that sweep, and the case; `latest`: that has the case.

    Raises RequestError where there is none.
    """
    folders = sweep_folder.known(outputs)[::-1]
    if sweep_id != "latest" or not folders:
        folders = [sweep_folder.find(outputs, sweep_id)]
    for folder in folders:
        if case_file.exists(folder / case_id):
            return _with_references(case_id, planned_in(folder))
    ids = [str(name) for name in sweep_folder.read_plan(folders[0])["cases"]]
    raise RequestError(f"case={case_id}: {unknown('case', case_id, ids)} (of {folders[0].name})")


def _with_references(case_id: str, planned: list[Planned]) -> list[Planned]:
    facts = {one.case.id: as_facts(one) for one in planned if one.unavailable is None}
    own = facts.get(case_id)
    if own is None:
        raise RequestError(f"case={case_id}: it cannot run here, as its sweep says")
    ids = list(dict.fromkeys(axis[0].case.id for axis in peers.axes(own, facts)))
    by_id = {one.case.id: one for one in planned}
    return [by_id[name] for name in [*ids, case_id]]


def trial(planned: list[Planned], outputs: Path, conf: ConfDirs, check: str | None) -> Trial:
    """The last of the cases, to be run in a folder of its own below `outputs`."""
    folder = claim(outputs / SEARCHES).resolve()
    for one in planned:
        case_file.write(one, folder / CASES / one.case.id)
    made = Trial(
        case_id=planned[-1].case.id,
        cases=[one.case.id for one in planned],
        folder=str(folder),
        cwd=str(Path.cwd()),
        config_dir=None if conf.own is None else str(conf.own),
        check=check,
        python=python_of(planned[-1].settings),
    )
    made.write()
    return made
