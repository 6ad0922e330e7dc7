"""What catches the faults that a suite plants: the detection table, and its exit code.

A fault counts as caught when the check that is meant for it fails. What exit code and finite losses
alone would have said is the control: most trainers are watched by nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.files import write_json, write_text
from sweep.provenance import LIBRARIES
from sweep.report.markdown import table

if TYPE_CHECKING:
    from sweep.report import Result

Conclusion = Callable[[Path, "Sequence[Result]"], int]
CONTROL = ("exit", "finite")
TABLE = "detection"
PAGE = """\
# Detection: which check catches which fault

Made by `python -m sweep -m suite=faults` (sweep {sweep}, {versions}): {caught} of {planted}
planted faults caught by the check that is meant for them; {control} of {planted} would have shown
in exit codes and losses that are not finite, which is all that most trainers are watched by (the
control). Clean cases beside them: {clean}, of which {alarms} had a failing finding.

`python -m sft.faults` says what each fault breaks, what its strength is, and which public
reports it resembles; `python -m sweep arch=llama layout=single feature=none fault=dead_model`
plants one. "Times the threshold" is how far beyond its threshold the farthest figure is; it is
empty where something has to be equal (batches, learning rates, random streams, buffers, the bits of
a repeated gradient) or to be there at all.

{table}

## Out of reach

- Races that show once in many runs: a case runs once a night. `optim_offload_stale`,
  `act_offload_stale` and `grouped_rows_not_masked` are planted so that they show in every run.
- What is wrong in transformers' own model code: the check `oracle` computes with it. What else
  every layout has alike is the oracle's to see, in float32 and in the first launch of a case.
- Faults smaller than rounding, where a case has no exact repeat (a resume on a CPU is one; layouts
  and accelerators add up in other orders), and in bfloat16 what bfloat16 rounds away: parity is
  exact in float32 only.
- DeepEP's own faults, where its library is not installed, and those of accelerators' kernels on
  a machine without one.
- Slower steps below the limit of `cost`, and slower kernels whose work is not on the CPU.
"""
HEAD = ("fault", "strength", "case", "meant for", "caught by", "times the threshold", "control")


@dataclass(frozen=True)
class Row:
    """A planted fault, and what became of it."""

    fault: str
    strength: str
    case: str
    meant_for: str
    caught_by: list[str]
    margin: float | None  # of the check meant for it; None where something has to be equal
    control: bool  # whether exit code or losses that are not finite would have shown it
    message: str
    unavailable: str = ""

    @property
    def is_caught(self) -> bool:
        """By the check that is meant for it."""
        return self.meant_for in self.caught_by

    @property
    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {**vars(self), "is_caught": self.is_caught}


@dataclass(frozen=True)
class Detection:
    """Which check is meant for which faults."""

    caught_by: Mapping[str, Sequence[str]]

    def conclude(self, folder: Path, results: Sequence[Result]) -> int:
        """Write detection.md and detection.json; 0 if every fault is caught and nothing else is.

        2 if no fault could be planted on this machine, as for any sweep of which nothing ran.
        """
        rows = [self.row(result) for result in results if result.case.fault is not None]
        alarms = [
            result
            for result in results
            if result.case.fault is None and not result.judgement.verdict.good
        ]
        write_text(folder / f"{TABLE}.md", page(folder.name, rows, results, len(alarms)))
        write_json(folder / f"{TABLE}.json", [row.plain for row in rows])
        missed = [row for row in rows if not row.is_caught and not row.unavailable]
        caught = sum(row.is_caught for row in rows)
        planted = sum(not row.unavailable for row in rows)
        print(
            f"\n{caught} of {planted} planted faults caught by the check meant for them,"
            f" {sum(row.control for row in rows)} shown by exit code and finite losses alone:"
            f" {folder / TABLE}.md"
        )
        for row in missed:
            seen = f"caught by {', '.join(row.caught_by)}" if row.caught_by else "caught by nothing"
            print(f"missed: {row.case} by {row.meant_for}, {seen}; {row.message}", file=sys.stderr)
        for alarm in alarms:
            print(f"false alarm: {alarm.case.id} is clean; {alarm.message}", file=sys.stderr)
        if missed or alarms:
            return 1
        if rows and not planted:
            print(
                "no fault could be planted here: every case with one is unavailable",
                file=sys.stderr,
            )
            return 2
        return 0

    def row(self, result: Result) -> Row:
        """What became of one fault."""
        name, _, strength = str(result.case.fault).partition(":")
        meant = self.meant_for(name)
        failed = [
            finding for finding in result.judgement.findings if finding.outcome.value == "fail"
        ]
        caught_by = list(dict.fromkeys(alarm.check for alarm in failed))
        said = {finding.check: finding for finding in reversed(result.judgement.findings)}
        finding = said.get(meant)
        is_unavailable = result.judgement.verdict.value == "unavailable"
        return Row(
            fault=name,
            strength=strength,
            case=result.case.id,
            meant_for=meant,
            caught_by=caught_by,
            margin=_beyond(finding.margin) if finding else None,
            control=any(check in CONTROL for check in caught_by),
            message=finding.message if finding else result.message,
            unavailable=result.message if is_unavailable else "",
        )

    def meant_for(self, fault: str) -> str:
        """The check that is meant for a fault; empty where the suite does not say."""
        return next((check for check, names in self.caught_by.items() if fault in names), "")


def _beyond(margin: float | None) -> float | None:
    """A margin that a threshold was passed by; a case may fail by what has to be equal instead."""
    return margin if margin is not None and margin > 1 else None


def page(sweep: str, rows: Sequence[Row], results: Sequence[Result], alarms: int) -> str:
    """The page, in Markdown; versions are those of the first case that ran."""
    environment = next(
        (result.facts.environment for result in results if result.facts is not None), {}
    )
    said = [f"{name} {environment[name]}" for name in LIBRARIES if name in environment]
    return PAGE.format(
        sweep=sweep,
        versions=", ".join(said),
        planted=len([row for row in rows if not row.unavailable]),
        caught=sum(row.is_caught for row in rows),
        control=sum(row.control for row in rows),
        clean=len(results) - len(rows),
        alarms=alarms or "none",
        table="\n".join(table(HEAD, map(_cells, rows))),
    )


def _cells(row: Row) -> list[str]:
    case = row.case.partition("-fault_")[0]
    head = [f"`{row.fault}`", row.strength, case, row.meant_for]
    if row.unavailable:
        return [*head, f"unavailable: {row.unavailable}", "", ""]
    others = [check for check in row.caught_by if check != row.meant_for]
    caught = ["**missed**" if not row.is_caught else row.meant_for, *others]
    margin = "" if row.margin is None or not row.is_caught else f"{row.margin:.2g}"
    return [*head, ", ".join(caught), margin, "shows" if row.control else "silent"]
