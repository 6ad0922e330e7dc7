"""python -m sweep.baseline: pin the sweep that later ones of its experiment are compared with."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweep.cli import arguments
from sweep.cli.arguments import EXPERIMENT, OUTPUTS, Usage
from sweep.files import ConfDirs
from sweep.store import Reader, SweepRecord
from sweep.store.reader import BASELINE, PINNED

Values = Mapping[str, str]
ARGUMENTS = (EXPERIMENT, OUTPUTS)
WHAT = (
    "One sweep of each experiment can be pinned, or each shard of one night. The check drift"
    "\ncompares later sweeps with it as well as with the last good one, which moves every night and"
    "\nso hides a slow drift."
)
USAGES = {
    "pin": Usage(
        "sweep.baseline", f"Pin a sweep (its id, or latest).\n{WHAT}",
        "python -m sweep.baseline pin latest experiment=nightly", ARGUMENTS, ("pin", "SWEEP"),
    ),
    "unpin": Usage(
        "sweep.baseline", "Forget the pinned sweep of an experiment, or of all.",
        "python -m sweep.baseline unpin experiment=nightly", ARGUMENTS, ("unpin",),
    ),
    "show": Usage(
        "sweep.baseline", f"Show the pinned sweeps.\n{WHAT}",
        "python -m sweep.baseline show", ARGUMENTS, ("show",),
    ),
}  # fmt: skip


def pin(reader: Reader, sweep: SweepRecord) -> list[SweepRecord]:
    """Pin a sweep; returns those that were in its place. Raises MachineryError.

    Shards of a night, which have no case in common, are pinned together.
    """
    pinned = [
        earlier
        for earlier in reader.pinned_sweeps(sweep.experiment)
        if earlier.run_id != sweep.run_id
    ]
    others = list(reader.like(sweep, pinned))
    # Pinned first: if we are killed in between, there are two and not none.
    with reader.location.writing(f"pin {sweep.sweep_id}"):
        reader.location.client.set_tag(sweep.run_id, BASELINE, PINNED)
    unpin(reader, others)
    return others


def unpin(reader: Reader, sweeps: Sequence[SweepRecord]) -> None:
    """Unpin these sweeps; raises MachineryError."""
    with reader.location.writing("unpin a sweep"):
        for sweep in sweeps:
            reader.location.client.delete_tag(sweep.run_id, BASELINE)


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the first word says; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    word = next((text for text in argv if text in USAGES), None)
    if word is None and {"--help", "-h"} & set(argv):
        print("\n\n".join(map(str, USAGES.values())))
        return 0
    word = word or "pin"  # a wrong request is answered with its example
    return arguments.run(USAGES[word], ACTIONS[word], argv)


def _pin(values: Values, _: ConfDirs) -> int:
    reader = Reader.at(Path(values["outputs"]))
    sweep = reader.find(values["sweep"], values.get("experiment"))
    before = pin(reader, sweep)
    replaced = "".join(f"; no longer {earlier.sweep_id}" for earlier in before)
    print(f"pinned {_said(sweep)}{replaced}")
    return 0


def _unpin(values: Values, _: ConfDirs) -> int:
    reader = Reader.at(Path(values["outputs"]))
    pinned = reader.pinned_sweeps(values.get("experiment"))
    unpin(reader, pinned)
    _list("no longer pinned: ", pinned)
    return 0


def _show(values: Values, _: ConfDirs) -> int:
    _list("pinned ", Reader.at(Path(values["outputs"])).pinned_sweeps(values.get("experiment")))
    return 0


def _list(title: str, sweeps: Sequence[SweepRecord]) -> None:
    for sweep in sweeps:
        print(f"{title}{_said(sweep)}")
    if not sweeps:
        print("no sweep is pinned; as in: " + USAGES["pin"].example)


def _said(sweep: SweepRecord) -> str:
    sha = sweep.tags.get("git_sha", "unknown")[:9]
    return f"{sweep.sweep_id} of {sweep.experiment} (git_sha {sha}, {sweep.status.lower()})"


ACTIONS: dict[str, Callable[[Values, ConfDirs], int]] = {
    "pin": _pin, "unpin": _unpin, "show": _show,
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
