"""docs/parity.md from a recorded sweep: how far each layout is from one process.

python -m sweep -m suite=parity
python scripts/parity_table.py sweep=latest
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from sweep.case.folder import find, read_plan
from sweep.checks import thresholds
from sweep.checks.comparison import AFTER, Comparison
from sweep.checks.differences import Series, series
from sweep.checks.thresholds import Table
from sweep.cli import arguments
from sweep.cli.arguments import OUTPUTS, SWEEP, Usage
from sweep.errors import RequestError
from sweep.files import ConfDirs, write_text
from sweep.report import Result
from sweep.report.markdown import table
from sweep.report.result import reference_of
from sweep.session.results import load_all

VERSIONS = ("torch", "transformers")
USAGE = Usage(
    "scripts.parity_table", "Write docs/parity.md from a sweep of suite=parity.",
    "python scripts/parity_table.py sweep=latest", [SWEEP, OUTPUTS],
)  # fmt: skip
HEAD = ("case", "loss", "grad norm", "worst group", "its grad norm", "another choice")
DOC = Path(__file__).parent.parent / "docs" / "parity.md"
PAGE = """\
# Parity: every layout computes what one process computes

Largest relative difference from `single` over the steps, fp32, CPU with gloo, `nano` checkpoints,
{versions}. Made by `python -m sweep -m suite=parity` and
`python scripts/parity_table.py`; the bounds are those of the check `parity`: losses {loss:g}.
Gradient norms of qwen4_exp have {kinked:g} ({embeddings:g} for its embeddings): the gate of its
n-gram layer is the root of |g|, at least 1e-6, and its slope falls from 500 to 0 there. Rounding
can move a gate over that kink and change the gradients before it. Its losses keep the bound.

A choice between two experts, or two keys of an indexer, that score the same but for the last digit
can fall differently in another layout. Training is another from there on, so the figures here are
of the steps before; the last column names the step, and how far the losses are apart after it (at
most {after:g}). Such a layout runs once more with the same choices, and all its steps are compared.

{table}
"""


def rows(results: Sequence[Result], limits: Table) -> Iterator[list[str]]:
    """A row for each case that is compared with another one of the sweep."""
    for result in results:
        reference = reference_of(result, results)
        if result.facts and reference and reference.facts:
            name = reference.case.id
            yield row(Comparison(result.facts, reference.facts, name, "parity", limits))


def row(compared: Comparison) -> list[str]:
    """The largest differences of a case's loss, gradient norm, and gradient norm of a group."""
    loss, norm, *groups = compared.series
    worst = max(groups, key=lambda group: group.largest)
    return [compared.facts.case.id, size(loss), size(norm), worst.name.rpartition(" of ")[2],
            size(worst), another_choice(compared)]  # fmt: skip


def size(figure: Series) -> str:
    """As in `1.2e-07`."""
    return f"{figure.largest:.1e}"


def another_choice(compared: Comparison) -> str:
    """The first step with another choice, and the largest difference in loss from there on."""
    if not compared.after:
        return "none"
    loss = series("loss", lambda step: step.loss, compared.after)
    return f"from step {loss.points[0].step}: loss {size(loss)}"


def page(results: Sequence[Result], limits: Table) -> str:
    """The page, in Markdown; raises RequestError where no case ran."""
    facts = next((result.facts for result in results if result.facts), None)
    if facts is None:
        raise RequestError("no case of the sweep ran; run suite=parity first")
    qwen4_exp = facts.case.model_copy(update={"arch": "qwen4_exp"})
    return PAGE.format(
        versions=", ".join(f"{name} {facts.environment.get(name)}" for name in VERSIONS),
        loss=limits.of_case("parity", ["loss"], facts.case).value,
        kinked=limits.of_case("parity", ["grad_norm"], qwen4_exp).value,
        embeddings=limits.of_case("parity", ["grad_norm_embedding"], qwen4_exp).value,
        after=limits.of_case("parity", [AFTER], facts.case).value,
        table="\n".join(table(HEAD, sorted(rows(results, limits)))),
    )


def main(values: dict[str, str], conf: ConfDirs) -> int:
    """Write the page; returns the exit code."""
    folder = find(Path(values["outputs"]), values["sweep"])
    results = load_all((folder / case_id for case_id in read_plan(folder)["cases"]), conf)
    write_text(DOC, page(results, thresholds.table(conf)))
    print(f"written: {DOC}")
    return 0


if __name__ == "__main__":
    sys.exit(arguments.run(USAGE, main))
