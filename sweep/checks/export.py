"""What a trainer exports in Hugging Face's format is the model that it trains.

Plain transformers loads the checkpoint exported after a step, in one process, and computes the loss
of the next step's batch (docs/oracle.md): the trainer's own next loss. Every key of the checkpoint
that the trainer started from is there once, and has its shape.
"""

from __future__ import annotations

from sweep.checks.base import Context, Finding, Outcome
from sweep.checks.differences import Series, in_common, series
from sweep.checks.thresholds import Table, Threshold
from sweep.errors import RequestError
from sweep.facts import ExportFacts, Facts, Step

LIMITED = ("loss",)
"""What may have a threshold."""


def check(facts: Facts, context: Context) -> Finding | None:
    """Compare with the loss of the export; None where nobody asked for one."""
    export = facts.export
    if export is None or not facts.launches:
        return None
    if export.reason:
        return _unseen(export.reason)
    if export.problems:
        more = f" ({len(export.problems)} such findings)" if len(export.problems) > 1 else ""
        return _failed(f"the exported checkpoint: {export.problems[0]}{more}", facts)
    return _compared(facts, export, context.limits)


def _compared(facts: Facts, export: ExportFacts, limits: Table) -> Finding:
    compared = series_of(facts)
    if compared is None:
        return _unseen(f"there is no loss of step {export.step} to compare")
    metrics = {"export/loss_delta": compared.largest}
    try:
        limit = limits.of_case("export", LIMITED, facts.case)
    except RequestError as error:  # no threshold for this device and dtype
        return _unseen(str(error), metrics)
    if compared.first_beyond(limit) is not None:
        if _is_off_from_the_start(facts, limit):
            return _unseen("the trainer's loss is not the oracle's at its first step", metrics)
        return _failed(_said(compared, limit, export), facts, metrics, compared.margin(limit))
    return Finding(
        check="export", outcome=Outcome.PASS, metrics=metrics, margin=compared.margin(limit)
    )


def series_of(facts: Facts) -> Series | None:
    """The trainer's loss of the step after the export next to the export's; None without both."""
    export = facts.export
    if export is None or export.loss is None:
        return None
    pairs = in_common(facts.steps, [Step(step=export.step, loss=export.loss)])
    return series("loss", lambda step: step.loss, pairs) if pairs else None


def _is_off_from_the_start(facts: Facts, limit: Threshold) -> bool:
    """Whether the trainer's loss is another one before it has trained: the check oracle says so."""
    pairs = in_common(facts.steps[:1], facts.oracle.steps if facts.oracle else [])
    return bool(pairs) and series("loss", lambda step: step.loss, pairs).largest > limit.value


def _said(compared: Series, limit: Threshold, export: ExportFacts) -> str:
    return compared.said(limit, "", f"what was exported after step {export.step - 1}")


def _failed(
    message: str, facts: Facts, metrics: dict[str, float] | None = None, margin: float | None = None
) -> Finding:
    return Finding(
        check="export", outcome=Outcome.FAIL, message=message, metrics=metrics or {},
        margin=margin, folder=facts.launches[0].directory,
    )  # fmt: skip


def _unseen(reason: str, metrics: dict[str, float] | None = None) -> Finding:
    return Finding(
        check="export", outcome=Outcome.INCONCLUSIVE, advisory=True,
        message=f"not compared: {reason}", metrics=metrics or {},
    )  # fmt: skip
