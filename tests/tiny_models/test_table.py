"""The table in the documentation: what it claims, and the script that measures it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tiny_models

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "tiny_models_table.py"
PAGE = ROOT / "docs" / "tiny-models.md"
LIMIT_SECONDS = {"tiny": 60, "nano": 10}
PEAK = 2.5
both_scales = pytest.mark.parametrize("scale", ["tiny", "nano"])


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiny_models_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def rows(text: str) -> dict[str, list[str]]:
    """arch -> the other cells of its row."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:] for cells in lines if cells[0] in tiny_models.names()}


def on_page(scale: str) -> dict[str, list[str]]:
    found = re.search(rf"<!-- table:{scale} -->\n(.*?)<!-- end -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return rows(found[1])


@both_scales
def test_the_page_has_every_arch_with_the_size_that_it_has(scale: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    assert sorted(on_page(scale)) == tiny_models.names()
    for arch, (layers, parameters, *_) in on_page(scale).items():
        config = tiny_models.get(arch).config(scale)
        with torch.device("meta"):
            built = AutoModelForCausalLM.from_config(config)
        assert int(layers) == config.num_hidden_layers, arch
        assert int(parameters.replace(",", "")) == built.num_parameters(), arch


@both_scales
def test_the_page_claims_no_more_time_and_memory_than_is_allowed(scale: str) -> None:
    for arch, (_, _, _, seconds, cpu_seconds, peak) in on_page(scale).items():
        assert max(float(seconds), float(cpu_seconds)) < LIMIT_SECONDS[scale], arch
        assert scale == "nano" or float(peak) <= PEAK, arch


def test_the_script_replaces_only_what_is_between_the_marks(script: ModuleType) -> None:
    page = "a\n<!-- table:tiny -->\nold\n<!-- end -->\nb\n<!-- table:nano -->\nkept\n<!-- end -->\n"
    assert script.insert(page, {"tiny": "new\n"}) == page.replace("old", "new")


@pytest.mark.slow
def test_writing_takes_at_most_two_and_a_half_times_the_checkpoint() -> None:
    """Measured in a process of its own: laguna, the smallest at tiny."""
    command = [sys.executable, str(SCRIPT), "laguna", "--scale", "tiny", "--print"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    _, parameters, megabytes, _, cpu_seconds, peak = rows(done.stdout)["laguna"]
    assert float(megabytes) == pytest.approx(4e-6 * int(parameters.replace(",", "")), rel=0.01)
    assert float(cpu_seconds) < LIMIT_SECONDS["tiny"]
    assert 0.9 < float(peak) <= PEAK
