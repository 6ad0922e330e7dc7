"""The examples run as their pages say, and the sweep finds what is wrong with them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.sweep.commands import sweep

PLAIN = ("--config-dir", "examples/plain_pytorch/conf", "trainer=plain_pytorch", "arch=llama",
         "feature=none_resume")  # fmt: skip
BUG = 'trainer.resume.argv=[--resume,"{resume_from}",--lose-optimizer]'


@pytest.mark.slow
def test_a_plain_trainer_described_in_yaml_passes_every_check_in_two_layouts(outputs: Path) -> None:
    done = sweep("-m", *PLAIN, "layout=single,fsdp2_ep2", f"outputs={outputs}", COLUMNS="200")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    for path in outputs.glob("*/*/findings.json"):
        findings = json.loads(path.read_text())["findings"]
        conclusive = {found["check"] for found in findings if found["outcome"] == "pass"}
        assert {"exit", "finite", "alive", "exercised", "resume"} <= conclusive
    sharded = json.loads(next(outputs.glob("*/llama-fsdp2*/findings.json")).read_text())
    assert {"check": "parity", "outcome": "pass"}.items() <= next(
        found for found in sharded["findings"] if found["check"] == "parity"
    ).items()


@pytest.mark.slow
def test_its_resume_that_forgets_the_optimizer_is_found(outputs: Path) -> None:
    done = sweep(*PLAIN, "layout=single", BUG, f"outputs={outputs}")
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"resume: step \d: loss is", " ".join(done.stdout.split())), done.stdout


TRL = ("--config-dir", "examples/trl/conf", "trainer=trl", "arch=llama")


@pytest.mark.slow
def test_trl_trains_resumes_and_shards_by_yaml_alone(outputs: Path) -> None:
    for words, passed in (
        (("layout=single,fsdp2_ep1", "feature=none"), "2 passed"),
        (("layout=single", "feature=none_resume", "noise.repeats=0"), "1 passed"),
    ):
        done = sweep("-m", *TRL, *words, f"outputs={outputs}", seconds=550, COLUMNS="200")
        assert done.returncode == 0, done.stdout + done.stderr
        assert passed in done.stdout
    conclusive = {
        path.parent.name: {
            found["check"]
            for found in json.loads(path.read_text())["findings"]
            if found["outcome"] == "pass"
        }
        for path in outputs.glob("*/*/findings.json")
    }
    assert {"oracle", "export"} <= conclusive["llama-fsdp2_ep1-none"]
    assert {"oracle", "export", "resume"} <= conclusive["llama-single-none_resume"]


def test_what_its_yaml_does_not_list_is_unavailable() -> None:
    done = sweep("-m", *PLAIN, "layout=cp2_ep2", "arch=llama,qwen3_moe", "plan=true")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "does not run layout cp2_ep1" in said
    assert "does not run arch qwen3_moe" in said
