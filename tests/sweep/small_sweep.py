"""A small sweep as a real one leaves it: two architectures, two layouts, a resume, a failure."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sweep import facts as facts_file
from sweep.case.folder import PLAN, this_driver
from sweep.case.labels import Case
from sweep.checks import Context
from sweep.facts import Facts, LaunchFacts, Metrics, Step
from sweep.files import write_json
from sweep.judge import judge
from sweep.report import Result, rerun_command
from tests.sweep.conftest import CASE

SWEEP_ID = "20260101-020304"
STARTED = 1_767_232_984.0  # when that was
ENVIRONMENT = {"torch": "2.13.0", "transformers": "5.24.0", "host": "runner", "device": "cpu"}
DEGREES = {"single": (1, 1, 1), "cp2_ep2": (2, 2, 2)}  # ranks, cp, ep
COUNTERS = {
    "cp2_ep2": {
        "cp_bytes_exchanged": [65536.0, 65536.0],
        "cp_sequence_share": [0.5, 0.5],
        "ep_tokens_received": [310.0, 330.0],
    }
}
FIRST_LOSS = {"qwen3_moe": 6.94, "gpt_oss": 7.11}
DROPPED = "gpt_oss-cp2_ep2-base"  # the case whose loss is off from step 3 on


def leave(outputs: Path) -> list[Result]:
    """Write the sweep's folder, and return the results with which it ends."""
    folder = outputs / SWEEP_ID
    found = [
        _facts(arch, layout, "base", shift=_dropped if (arch, layout) == _names(DROPPED) else None)
        for arch in FIRST_LOSS
        for layout in DEGREES
    ]
    found.append(_facts("qwen3_moe", "cp2_ep2", "resume", last=8))
    write_json(
        folder / PLAN,
        {
            "sweep_id": SWEEP_ID,
            "experiment": "nightly",
            "argv": [],
            "started": STARTED,
            "driver": this_driver(),
            "environment": ENVIRONMENT,
            "cases": [one.case.id for one in found],
        },
    )
    return [_result(one, folder) for one in found]


def _names(case_id: str) -> tuple[str, str]:
    arch, layout, _ = case_id.split("-")
    return arch, layout


def _result(facts: Facts, folder: Path) -> Result:
    case_dir, case = folder / facts.case.id, facts.case
    names = {"arch": case.arch, "layout": case.layout, "feature": case.feature}
    overrides = [f"{key}={value}" for key, value in names.items()]
    write_json(case_dir / "case.json", {"case": case.model_dump(), "overrides": overrides})
    facts_file.save(facts, case_dir)
    return Result(judge(facts, Context()), case_dir, rerun_command(overrides), facts)


def _dropped(step: int) -> float:
    return 0.05 * (step - 2) if step >= 3 else 0.0


def _facts(
    arch: str, layout: str, feature: str, last: int = 5, shift: Callable[[int], float] | None = None
) -> Facts:
    ranks, cp, ep = DEGREES[layout]
    labels = {"id": f"{arch}-{layout}-{feature}", "arch": arch, "layout": layout,
              "feature": feature, "trainer": "sft", "steps": last, "world_size": ranks}  # fmt: skip
    asked: dict[str, Any] = {"dp_shard": 1, "cp": cp, "ep": ep}
    steps = [_step(arch, layout, n, shift or (lambda _: 0.0)) for n in range(1, last + 1)]
    launches = [_launch("train", 1, steps)]
    if feature == "resume":
        asked["resume_at"] = [5]
        launches.append(_launch("resume", 2, steps[5:]))
    case = Case.model_validate(CASE.model_dump() | labels)
    return Facts(sweep_id=SWEEP_ID, case=case, started=STARTED, seconds=41.0, asked=asked,
                 environment=ENVIRONMENT, vocab_size=1024, launches=launches)  # fmt: skip


def _launch(name: str, number: int, steps: list[Step]) -> LaunchFacts:
    return LaunchFacts(
        name=name, directory=f"launches/{number}_{name}", argv=["python", "-m", "sft"],
        first_step=steps[0].step, last_step=steps[-1].step, exit_code=0, limit_seconds=900.0,
        started=STARTED + 20.0 * number, seconds=19.0, first_step_seconds=12.0,
        metrics=Metrics(steps=steps),
    )  # fmt: skip


def _step(arch: str, layout: str, number: int, shift: Callable[[int], float]) -> Step:
    loss = FIRST_LOSS[arch] - 0.35 * math.sqrt(number - 1) + shift(number)
    ranks = range(DEGREES[layout][0])
    return Step(
        step=number,
        loss=loss,
        grad_norm=2.4 / math.sqrt(number),
        lr=1e-4,
        tokens=1012,
        step_seconds=0.4,
        peak_memory_gib=0.9,
        params_moved=1.0,
        grad_norm_groups={"embedding": 0.5, "experts": 1.1},
        global_batch_digest=f"batch{number}",
        batch_digests=[f"batch{number}rank{rank}" for rank in ranks],
        rng_digests=[f"rng{number}rank{rank}" for rank in ranks],
        buffers_digest="buffers",
        gradient_digests=[f"gradient{number}rank{rank}" for rank in ranks],
        counters=COUNTERS.get(layout, {}),
    )
