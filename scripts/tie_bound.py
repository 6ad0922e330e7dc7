"""How far apart the margins of the same choice are in two layouts: the bound of a tie.

python -m sweep -m suite=parity
python scripts/tie_bound.py sweep=latest
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sft.context import ties
from sweep.case.folder import find, read_plan
from sweep.checks import agreement, peers, thresholds
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, SWEEP, Usage
from sweep.errors import RequestError
from sweep.facts import Facts
from sweep.files import ConfDirs
from sweep.report import Result
from sweep.session.results import load_all
from sweep.trainers.base import CHOICES

USAGE = Usage(
    "scripts.tie_bound", "The largest difference of margins in clean cases, for `tie`.",
    "python scripts/tie_bound.py sweep=latest", [SWEEP, OUTPUTS],
)  # fmt: skip


def rows(results: Sequence[Result], limits: thresholds.Table) -> Iterator[tuple[str, int, float]]:
    """Each case with how many margins were compared with the plainest case's, and the largest."""
    sweep = {
        result.case.id: result.facts for result in results if result.facts and not result.case.fault
    }
    for result in results:
        facts = sweep.get(result.case.id)
        plain = peers.plainest(facts, sweep) if facts else None
        if facts and plain and all(case.launches[0].keeps_choices for case in (facts, plain)):
            alike = [ours.step for ours, _ in agreement.compare(facts, plain, limits).alike]
            ours, theirs = (_choices(result.folder.parent, case) for case in (facts, plain))
            margins = [x for key in ours.keys() & theirs.keys() if key[0] in alike
                     for x in differences(ours[key], theirs[key])]  # fmt: skip
            yield facts.case.id, len(margins), max(margins, default=0.0)


def differences(ours: ties.Choices, theirs: ties.Choices) -> list[float]:
    """Of the margins at places that both kept, where both picked the same."""
    known = {place: (margin, bits.rstrip(b"\0")) for place, margin, bits in _places(theirs)}
    return [
        abs(margin - known[place][0])
        for place, margin, bits in _places(ours)
        if place in known and bits.rstrip(b"\0") == known[place][1]
    ]


def _places(choices: ties.Choices) -> Iterator[tuple[int, float, bytes]]:
    places, margins, picked = choices
    for place, margin, bits in zip(places.tolist(), margins.tolist(), picked, strict=True):
        yield place, margin, bits.numpy().tobytes()


def _choices(sweep: Path, facts: Facts) -> dict[tuple[int, int], ties.Choices]:
    return ties.read(sweep / facts.case.id / facts.launches[0].directory / CHOICES)


def main(values: dict[str, str], conf: ConfDirs) -> int:
    """Print a line a case, and the largest of all."""
    folder = find(Path(values["outputs"]), values["sweep"])
    results = load_all((folder / case_id for case_id in read_plan(folder)["cases"]), conf)
    margins = list(rows(results, thresholds.table(conf)))
    if not margins:
        raise RequestError("no case keeps its choices; run suite=parity first")
    for case_id, count, largest in margins:
        print(f"{case_id}: {largest:.1e} in {count} margins")
    print(f"at most {max(largest for _, _, largest in margins):.1e} in {len(margins)} cases")
    return 0


if __name__ == "__main__":
    sys.exit(arguments.run(USAGE, main))
