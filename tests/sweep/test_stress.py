"""Many cases on two slots, of which most go wrong at random: right verdicts, nothing left behind.

Forty cases with each change; two hundred, as many as a team's night has, in `make test-all`.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.nightly import representatives
from tests.sweep.commands import DUMMY, DUMMY_TRAINER, processes_of, sweep
from tests.sweep.recording import statuses

ARCHS = ["llama", "qwen3", "qwen3_moe", "gpt_oss", "laguna",
         "glm4_moe", "minimax_m2", "nemotron_h", "qwen3_5_moe", "deepseek_v4"]  # fmt: skip
VERDICTS = {
    "ok": "passed", "leftover": "passed", "exit_42": "crashed", "killed": "crashed",
    "hang": "timed_out", "job_killed": "crashed", "controller_killed": "crashed",
    "short": "failed", "garbage": "failed", "nan": "failed", "twice": "failed",
}  # fmt: skip
TRAINER = f'trainer.argv=["{{python}}","{DUMMY}","{{arch}}:{{seed}}","{{output_dir}}","{{steps}}"]'


@pytest.mark.slow
@pytest.mark.parametrize("cases", representatives([40, 200], 40))
def test_every_case_of_a_stressed_sweep_has_the_right_verdict(outputs: Path, cases: int) -> None:
    seeds = cases // len(ARCHS)
    dice = random.Random(7)
    behaviours = {
        f"{arch}:{seed}": dice.choice([*VERDICTS, "ok"]) for arch in ARCHS for seed in range(seeds)
    }
    done = sweep(
        "-m", f"arch={','.join(ARCHS)}", "layout=single", f"seed=range({seeds})", *DUMMY_TRAINER,
        TRAINER, "launch.slots=2", "launch.timeout_seconds=6", f"outputs={outputs}", seconds=880,
        BEHAVIOURS=json.dumps(behaviours),
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert processes_of(outputs) == []
    wrong = {}
    for path in outputs.glob("*/*/findings.json"):
        judgement = json.loads(path.read_text())
        case = judgement["case"]
        behaviour = behaviours.pop(f"{case['arch']}:{case['seed']}")
        if judgement["verdict"] != VERDICTS[behaviour]:
            wrong[case["id"]] = (behaviour, judgement["verdict"])
    assert behaviours == {}, "cases without a result"
    assert wrong == {}
    kinds = [kind for kind, _ in statuses(outputs)]
    assert (kinds.count("case"), kinds.count("sweep")) == (seeds * len(ARCHS), 1)
    assert {status for _, status in statuses(outputs)} == {"FINISHED", "FAILED"}
