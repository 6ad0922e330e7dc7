"""A case at the end, and what its verdicts make of the whole sweep."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sweep import commands
from sweep.case.labels import Case
from sweep.checks import Finding, Outcome, peers
from sweep.facts import Facts
from sweep.judge import Judgement, Verdict
from sweep.report.runs import Run, overlay_address, run_of

LOCATED = "locate/locate.json"  # in a case's folder: sweep.locate's answer
MESSAGE_LIMIT = 900  # characters of a message; a trainer's can be a hundred thousand long


@dataclass(frozen=True)
class Result:
    """A case at the end: its verdict, where its files are, and how to run it again."""

    judgement: Judgement
    folder: Path  # where its files are here, if they are
    command: str
    facts: Facts | None = None  # None: it never ran
    run: Run | None = None  # None: as the case's folder says
    link: str = ""  # where a page leads to its files, if not to a folder with its id
    origin: str = ""  # the folder on the machine where it ran, if that is another: only shown

    @property
    def case(self) -> Case:
        """The case's labels."""
        return self.judgement.case

    @property
    def in_mlflow(self) -> Run | None:
        """The case's run; None if it is in no store."""
        return self.run or run_of(self.folder)

    @property
    def interrupted(self) -> bool:
        """Whether the case was stopped, and so has no result."""
        return self.facts is not None and self.facts.interrupted

    @property
    def losses(self) -> str:
        """The loss of the first step and of the last, whatever their order in the file."""
        steps = sorted(self.facts.steps if self.facts else [], key=lambda step: step.step)
        return f"{steps[0].loss:.4f} > {steps[-1].loss:.4f}" if steps else "-"

    @property
    def time(self) -> str:
        """What the case took."""
        return f"{self.facts.seconds:.0f} s" if self.facts else "-"

    @property
    def message(self) -> str:
        """The worst that speaks against the case; empty if nothing does."""
        worst = self.judgement.worst
        known = f" (known: {worst.known})" if worst and worst.known else ""
        return f"{worst.check}: {worst.message}{known}" if worst else ""

    @property
    def against(self) -> list[Finding]:
        """Everything that speaks against the case, the worst first."""
        worst = self.judgement.worst
        findings = [finding for finding in self.judgement.findings if finding is not worst]
        rest = [
            finding
            for finding in findings
            if not finding.advisory and finding.outcome is not Outcome.PASS
        ]
        return [worst, *rest] if worst else []

    @property
    def located(self) -> str:
        """Where the case parts from what it is compared with; empty unless somebody looked."""
        path = self.folder / LOCATED
        with contextlib.suppress(OSError, ValueError, KeyError):
            return str(json.loads(path.read_text(encoding="utf-8"))["line"])
        return ""

    @property
    def where(self) -> Path:
        """The folder to look in."""
        worst = self.judgement.worst
        folder = Path(self.origin) if self.origin else self.folder
        return folder / worst.folder if worst else folder

    @property
    def notes(self) -> list[str]:
        """What is said of the case without speaking against it."""
        findings = self.judgement.findings
        noted = [
            finding for finding in findings if finding.advisory or finding.outcome is Outcome.PASS
        ]
        notes = [f"{note.check}: {note.message}" for note in noted if note.message]
        launches = self.facts.launches if self.facts else []
        return notes + [left for launch in launches if (left := launch.left_behind)]

    @property
    def tails(self) -> list[tuple[str, str]]:
        """The ends of the logs of a launch that failed, with a title each."""
        ends = []
        for launch in self.facts.launches if self.facts else []:
            rank = "every rank" if launch.timed_out else f"rank {launch.failed_rank}"
            ends.append((f"end of {launch.directory}/launcher.log", launch.log_tail))
            ends.append((f"end of the log of {rank}", launch.rank_tail))
        return [(title, text) for title, text in ends if text]


def rerun_command(overrides: Sequence[str], config_dir: str | None = None) -> str:
    """The command line that runs the case again in the foreground."""
    return commands.spelled("sweep", overrides, config_dir)


def exit_code(results: Sequence[Result], problem: str | None) -> int:
    """0 all good, 1 a case failed, 2 nothing could run here, 3 the machinery failed."""
    verdicts = [result.judgement.verdict for result in results]
    if any(not verdict.good for verdict in verdicts):
        return 1
    if problem is not None:
        return 3
    return 2 if all(verdict is Verdict.UNAVAILABLE for verdict in verdicts) else 0


def printable(text: str) -> str:
    """Without control characters: XML refuses them, and they would steer a terminal."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


def short(message: str, limit: int = MESSAGE_LIMIT) -> str:
    """A message in one line, cut where it is a log rather than a message."""
    line = " ".join(printable(message).split())
    return line if len(line) <= limit else f"{line[:limit]} [cut; all of it is in findings.json]"


def counts(results: Sequence[Result]) -> str:
    """`30 passed, 2 failed; 1 of them not compared`."""
    verdicts = [result.judgement.verdict.value for result in results]
    numbers = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    said = ", ".join(f"{count} {verdict}" for verdict, count in numbers.items()) or "no results"
    alone = sum(result.judgement.words != result.judgement.verdict.value for result in results)
    return f"{said}; {alone} of them not compared" if alone else said


def reference_of(result: Result, results: Sequence[Result]) -> Result | None:
    """The case that check `parity` compares it with; None if it is the reference itself."""
    if result.facts is None:
        return None
    by_id = {result.case.id: result for result in results}
    facts = {result.case.id: result.facts for result in results if result.facts is not None}
    facts_of_reference = next(filter(peers.is_whole, peers.candidates(result.facts, facts)), None)
    return by_id[facts_of_reference.case.id] if facts_of_reference else None


def curves_address(result: Result, results: Sequence[Result]) -> str:
    """The case's curves in the MLflow UI, over its reference's; empty where there is no server."""
    reference = reference_of(result, results)
    own, other = result.in_mlflow, reference.in_mlflow if reference else None
    if own is None:
        return ""
    return overlay_address([own, other]) if other else own.address
