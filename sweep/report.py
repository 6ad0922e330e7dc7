"""Verdicts -> a table on the terminal, summary.md, junit.xml, the exit code."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sweep.case import Case
from sweep.checks import Finding, Outcome
from sweep.facts import Facts
from sweep.files import write_text
from sweep.judge import Judgement, Verdict
from sweep.progress import STYLES

GRAPH_BREAKS = "graph_breaks"


@dataclass(frozen=True)
class Result:
    """A case at the end: its verdict, where its files are, and how to run it again."""

    judgement: Judgement
    folder: Path
    command: str
    facts: Facts | None = None  # None: it never ran

    @property
    def case(self) -> Case:
        """The case's labels."""
        return self.judgement.case

    @property
    def losses(self) -> str:
        """The first loss and the last."""
        steps = self.facts.steps if self.facts else []
        return f"{steps[0].loss:.4f} > {steps[-1].loss:.4f}" if steps else "-"

    @property
    def time(self) -> str:
        """What the case took."""
        return f"{self.facts.seconds:.0f} s" if self.facts else "-"

    @property
    def message(self) -> str:
        """What speaks against the case; empty if nothing does."""
        worst = self.judgement.worst
        return f"{worst.check}: {worst.message}" if worst else ""

    @property
    def where(self) -> Path:
        """The folder to look in."""
        worst = self.judgement.worst
        return self.folder / worst.folder if worst else self.folder

    @property
    def notes(self) -> list[str]:
        """What is said of the case without speaking against it."""
        found = self.judgement.findings
        noted = [one for one in found if one.advisory or one.outcome is Outcome.PASS]
        return [f"{one.check}: {one.message}" for one in noted if one.message]

    @property
    def tails(self) -> list[tuple[str, str]]:
        """The ends of the logs of a launch that failed, with a title each."""
        found = []
        for launch in self.facts.launches if self.facts else []:
            rank = "every rank" if launch.timed_out else f"rank {launch.failed_rank}"
            found.append((f"end of {launch.directory}/launcher.log", launch.log_tail))
            found.append((f"end of the log of {rank}", launch.rank_tail))
        return [(title, text) for title, text in found if text]


def rerun_command(overrides: Sequence[str]) -> str:
    """The command line that runs the case again in the foreground."""
    return shlex.join(["python", "-m", "sweep", *overrides])


def exit_code(results: Sequence[Result], problem: str | None) -> int:
    """0 all good, 1 a case failed, 2 nothing could run here, 3 the machinery failed."""
    verdicts = [result.judgement.verdict for result in results]
    if any(not verdict.good for verdict in verdicts):
        return 1
    if problem is not None:
        return 3
    return 2 if all(verdict is Verdict.UNAVAILABLE for verdict in verdicts) else 0


def write(folder: Path, results: Sequence[Result]) -> None:
    """Write summary.md and junit.xml into the sweep's folder."""
    write_text(folder / "summary.md", summary(folder.name, results))
    write_text(folder / "junit.xml", junit(folder.name, results))


def show(folder: Path, results: Sequence[Result], problem: str | None) -> None:
    """Print the table, then each failure with where to look and how to run it again."""
    console = Console()
    console.print(_table(folder, results))
    for result in results:
        if result.message:
            _show_failure(console, result)
    for result in results:
        for note in result.notes:
            console.print(Text(f"{result.case.id}: {note}", style="dim"), soft_wrap=True)
    if problem is not None:
        console.print(Text(f"the sweep itself had a problem: {problem}", style="red"))
    console.print(Text(f"{_counts(results)}; {folder}/summary.md", style="bold"))


def summary(sweep_id: str, results: Sequence[Result]) -> str:
    """The table and the failures as Markdown."""
    lines = [f"# Sweep {sweep_id}", "", _counts(results), ""]
    lines += ["| case | verdict | loss | time |", "| --- | --- | --- | --- |"]
    lines += [f"| {result.case.id} | {result.judgement.verdict.value} | {result.losses} "
              f"| {result.time} |" for result in results]  # fmt: skip
    for result in results:
        if result.message:
            lines += ["", failure_note(result)]
    notes = [f"- {result.case.id}: {note}" for result in results for note in result.notes]
    if notes:
        lines += ["", "## Notes", "", *notes]
    return "\n".join(lines) + "\n"


def failure_note(result: Result, limit: int = 6000) -> str:
    """What went wrong with a case, where to look, and how to run it again, as Markdown."""
    note = f"## {result.case.id}: {result.judgement.verdict.value}\n\n{result.message}\n\n"
    note += f"Look in `{result.where}`. Run it again:\n\n    {result.command}\n"
    for title, text in result.tails:
        indented = "\n".join(f"    {line}" for line in text.splitlines())
        note += f"\n{title[0].upper()}{title[1:]}:\n\n{indented}\n"
    return note if len(note) <= limit else note[:limit] + "\n[cut]\n"


def junit(sweep_id: str, results: Sequence[Result]) -> str:
    """One test a case, and one for its graph breaks; unavailable cases are skipped."""
    tests = [_junit_test(*part) for result in results for part in _parts(result)]
    suite = ET.Element(
        "testsuite",
        name=f"sweep {sweep_id}",
        tests=str(len(tests)),
        failures=str(sum(test.find("failure") is not None for test in tests)),
        skipped=str(sum(test.find("skipped") is not None for test in tests)),
    )
    suite.extend(tests)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _parts(result: Result) -> Iterator[tuple[str, Result]]:
    """A case whose only fault are graph breaks trains well: they are a result of their own."""
    findings = result.judgement.findings
    others = _only(result, [one for one in findings if one.check != GRAPH_BREAKS])
    breaks = _only(result, [one for one in findings if one.check == GRAPH_BREAKS])
    breaks = replace(breaks, facts=None)  # time and logs are the case's
    yield "test_sft", others if others.message or not breaks.message else _passed(others)
    if breaks.judgement.findings:
        yield "test_no_graph_breaks", breaks if breaks.message else _passed(breaks)


def _only(result: Result, findings: list[Finding]) -> Result:
    judgement = result.judgement.model_copy(update={"findings": findings})
    return replace(result, judgement=judgement)


def _passed(result: Result) -> Result:
    judgement = result.judgement.model_copy(update={"verdict": Verdict.PASSED})
    return replace(result, judgement=judgement)


def _junit_test(name: str, result: Result) -> ET.Element:
    verdict, message = result.judgement.verdict, _printable(result.message)
    seconds = result.facts.seconds if result.facts else 0.0
    test = ET.Element("testcase", classname=result.case.arch, name=f"{name}[{result.case.id}]",
                      time=f"{seconds:.3f}")  # fmt: skip
    if verdict is Verdict.UNAVAILABLE:
        ET.SubElement(test, "skipped", message=message)
    elif not verdict.good:
        failure = ET.SubElement(test, "failure", message=message, type=verdict.value)
        failure.text = _printable(failure_note(result))
    if result.notes:
        ET.SubElement(test, "system-out").text = _printable("\n".join(result.notes))
    return test


def _printable(text: str) -> str:
    """Without the control characters that XML refuses (colours in a trainer's log)."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


def _table(folder: Path, results: Sequence[Result]) -> Table:
    table = Table(title=f"{folder}/<case>", title_justify="left", expand=False)
    table.add_column("case", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("loss", no_wrap=True)
    table.add_column("time", no_wrap=True, justify="right")
    table.add_column("look in", overflow="fold")
    for result in results:
        verdict = result.judgement.verdict.value
        table.add_row(
            Text(result.case.id), Text(verdict, style=STYLES.get(verdict, "red")),
            result.losses, result.time, Text(str(result.where.relative_to(result.folder))),
        )  # fmt: skip
    return table


def _show_failure(console: Console, result: Result) -> None:
    style = STYLES.get(result.judgement.verdict.value, "red")
    console.print(Text(f"\n{result.case.id}: {result.message}", style=style))
    console.print(Text(f"  look in {result.where}\n  {result.command}"), soft_wrap=True)
    for title, text in result.tails:
        console.print(Text(f"  {title}:", style="bold"))
        console.print(Text("\n".join(f"    {line}" for line in text.splitlines())), soft_wrap=True)


def _counts(results: Sequence[Result]) -> str:
    verdicts = [result.judgement.verdict.value for result in results]
    counts = {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "no results"
