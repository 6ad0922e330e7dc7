"""Ask the oracle what the checkpoint gives that a launch exported (docs/oracle.md).

Nothing is kept: what layouts export differs by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sweep.facts import ExportFacts, LaunchFacts
from sweep.files import write_json
from sweep.run import consult

FOLDER = "export"  # in the case's folder
NEAR = {"float32": 1e-6, "bfloat16": 1e-2}  # relative: a loss so near is no reason to keep weights


def look(
    export: Path | None, checkpoint: Path, settings: Mapping[str, Any], device: str, case_dir: Path,
    first: LaunchFacts, run: consult.Run,
) -> ExportFacts:  # fmt: skip
    """What the oracle says of a case's first launch's export, or why nothing."""
    taps = case_dir / consult.first_folder(first) / consult.TAPS
    if export is None:
        return ExportFacts(reason="the trainer exports nothing in Hugging Face's format")
    if not first.ended_well:
        return ExportFacts(reason="the trainer did not end well")
    if not export.is_dir():
        return ExportFacts(problems=[f"there is no {_shown(export, case_dir)}"])
    if not taps.is_dir():
        return ExportFacts(reason="the trainer shows no batches; it may call sweep_taps.batch")
    folder, step = case_dir / FOLDER, first.last_step
    folder.mkdir(exist_ok=True)
    chosen = folder / "settings.json"
    write_json(chosen, dict(settings))
    losses = {step.step: step.loss for step in first.metrics.steps}
    told = ["--loss", repr(losses[step])] if step in losses else []
    argv = [str(export), str(checkpoint), str(taps), "--after", str(step - 1), *told,
            "--settings", str(chosen), "--device", device]  # fmt: skip
    done, said = consult.asked("oracle.export", argv, folder, step, run)
    if said is None:
        return ExportFacts(reason=consult.failure(done, FOLDER))
    is_right = not said["problems"] and _is_right(said["loss"], losses.get(step), settings)
    if is_right and export.is_relative_to(case_dir):  # large, and nobody needs them now
        for path in export.glob("*.safetensors"):
            path.unlink()
    return ExportFacts(
        step=said["step"], loss=said.get("loss"), turned_picks=said.get("turned_picks", 0),
        problems=said["problems"], seconds=done.seconds, cpu_seconds=done.cpu_seconds,
    )  # fmt: skip


def _is_right(loss: float, reported: float | None, settings: Mapping[str, Any]) -> bool:
    near = NEAR.get(settings["dtype"], 0.0)
    return reported is not None and math.isclose(loss, reported, rel_tol=near)


def _shown(export: Path, case_dir: Path) -> Path:
    return export.relative_to(case_dir) if export.is_relative_to(case_dir) else export
