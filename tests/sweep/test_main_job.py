"""The built-in trainer on four ranks, broken; the main job itself is in test_readme.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sweep.commands import ROOT, sweep

pytestmark = pytest.mark.slow


def test_a_trainer_broken_on_purpose_is_a_readable_report(outputs: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('RANK') == '2': sys.exit('broken on purpose')\n"
    )
    done = sweep(
        "-m", "arch=llama", "layout=cp4_ep4", f"outputs={outputs}", "launch.mode=cold",
        f"+trainer.env.PYTHONPATH='{tmp_path}:{ROOT}'",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    said = " ".join(done.stdout.split())
    assert "llama-cp4_ep1-base: crashed exit: train: exit code 1 before its first step" in said
    assert "rank 2 failed first" in said
    assert "end of the log of rank 2:" in said
    assert "broken on purpose" in said
    assert "1 crashed" in done.stdout
    facts = json.loads(next(outputs.glob("*/*/facts.json")).read_text())
    assert facts["launches"][0]["failed_rank"] == 2
