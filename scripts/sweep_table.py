"""A recorded sweep as Markdown tables: loss, time and memory of each case, and where time went.

python scripts/sweep_table.py sweep=latest outputs=outputs
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweep.checks import cost
from sweep.cli import arguments
from sweep.cli.arguments import EXPERIMENT, OUTPUTS, SWEEP, Usage
from sweep.facts import Facts
from sweep.files import ConfDirs
from sweep.report.markdown import table
from sweep.store import CaseRecord, Reader, SweepRecord

USAGE = Usage(
    "scripts.sweep_table", "A recorded sweep as Markdown tables.",
    "python scripts/sweep_table.py sweep=latest", [SWEEP, EXPERIMENT, OUTPUTS],
)  # fmt: skip

HEAD = ("case", "verdict", "loss", "first step, s", "compile, s", "step, s", "peak, GiB", "breaks")
SPANS = (
    "architecture",
    "cases",
    "first launches, s",
    "start, s",
    "compile, s",
    "steps, s",
    "end, s",
)
"""`start`: processes, imports, loading; `steps`: all, without what the first compiled for."""
ABOUT = ("gpu", "gpu_driver", "device", "torch", "transformers", "python", "git_sha", "git_dirty")


def about(sweep: SweepRecord) -> str:
    """What the sweep ran with."""
    known = [f"{name} {sweep.tags[name]}" for name in ABOUT if name in sweep.tags]
    return f"Sweep {sweep.sweep_id}: {', '.join(known)}."


def spans(cases: list[CaseRecord]) -> Iterator[list[str]]:
    """How each architecture's first launches spent their time."""
    whole = [case.facts for case in cases if case.facts and cost.first_step_seconds(case.facts)]
    for arch in dict.fromkeys(facts.case.arch for facts in whole):
        yield span(arch, [facts for facts in whole if facts.case.arch == arch])
    if whole:
        yield span("all", whole)


def span(name: str, every: Sequence[Facts]) -> list[str]:
    """One architecture."""
    compiling = sum(facts.compile_seconds or 0.0 for facts in every)
    first = sum(facts.steps[0].step_seconds or 0.0 for facts in every)
    later = sum(step.step_seconds or 0.0 for facts in every for step in facts.steps[1:])
    start = sum(cost.first_step_seconds(facts) or 0.0 for facts in every) - first
    launched = sum(facts.launches[0].seconds for facts in every)
    steps = first - compiling + later
    parts = (launched, start, compiling, steps, launched - start - compiling - steps)
    return [name, str(len(every)), *(f"{part:.0f}" for part in parts)]


def row(case: CaseRecord) -> list[str]:
    """One case."""
    facts, verdict = case.facts, case.tags.get("verdict", "interrupted")
    if facts is None or not facts.steps:
        return [case.case_id, verdict, *["-"] * (len(HEAD) - 2)]
    return [
        case.case_id,
        verdict,
        f"{facts.steps[0].loss:.4f} > {facts.steps[-1].loss:.4f}",
        figure(cost.first_step_seconds(facts), ".0f"),
        figure(facts.compile_seconds, ".1f"),
        figure(cost.step_seconds(facts), ".3f"),
        figure(cost.peak_memory_gib(facts), ".2f"),
        figure(case.metrics.get("graph_breaks/total"), ".0f"),
    ]


def figure(value: float | None, form: str) -> str:
    """A figure, or that there is none."""
    return "-" if value is None else format(value, form)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; returns the exit code."""
    return arguments.run(USAGE, _print, argv)


def _print(values: dict[str, str], _: ConfDirs) -> int:
    reader = Reader.at(Path(values["outputs"]))
    sweep = reader.find(values["sweep"], values.get("experiment"))
    cases = reader.cases(sweep)
    tables = table(HEAD, map(row, cases)), table(SPANS, spans(cases))
    print("\n".join([about(sweep), "", *tables[0], "", *tables[1]]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
