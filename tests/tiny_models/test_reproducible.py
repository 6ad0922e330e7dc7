"""The same request gives the same bytes, whatever process, memory or threads it is built in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tiny_models
from tiny_models import manifest

ROOT = Path(__file__).parents[2]

# Uninitialised memory reads as NaN, the heap is full of leftovers, the caller has drawn numbers.
HOSTILE = """
import torch
torch.use_deterministic_algorithms(True)
torch.utils.deterministic.fill_uninitialized_memory = True
assert torch.empty(64).isnan().all(), "memory is not poisoned"
torch.manual_seed(99)
leftovers = [torch.full((2**n,), 7.0) for n in range(8, 22)]
del leftovers[::2]
"""
WRITE = """
import sys, tiny_models
for arch in reversed(tiny_models.names()) if {backwards} else tiny_models.names():
    tiny_models.write(arch, "nano", 0, sys.argv[1] + "/" + arch)
"""


def start(folder: Path, before: str, threads: int) -> subprocess.Popen[str]:
    code = before + WRITE.replace("{backwards}", str(bool(before)))
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": str(threads), "PYTHONHASHSEED": str(threads)},
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_two_fresh_processes_write_the_same_bytes_whatever_was_in_memory(tmp_path: Path) -> None:
    plain, hostile = tmp_path / "plain", tmp_path / "hostile"
    running = [start(plain, "", threads=1), start(hostile, HOSTILE, threads=2)]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    for arch in tiny_models.names():
        files = {path.name: manifest.digest(path) for path in (plain / arch).iterdir()}
        again = {path.name: manifest.digest(path) for path in (hostile / arch).iterdir()}
        assert files == again, arch


@pytest.mark.parametrize("arch", ["llama", "gpt_oss"])
def test_a_later_build_in_a_used_process_gives_the_same_bytes(arch: str, tmp_path: Path) -> None:
    import torch

    first = manifest.read(tiny_models.write(arch, "nano", 0, tmp_path / "first"))
    torch.rand(1000)
    second = manifest.read(tiny_models.write(arch, "nano", 0, tmp_path / "second"))
    assert first == second


def test_another_seed_gives_other_weights_and_the_same_tokenizer(tmp_path: Path) -> None:
    first = manifest.read(tiny_models.write("qwen3", "nano", 0, tmp_path / "first"))
    second = manifest.read(tiny_models.write("qwen3", "nano", 1, tmp_path / "second"))
    assert first is not None
    assert second is not None
    assert first["files"].pop("model.safetensors") != second["files"].pop("model.safetensors")
    assert first["files"] == second["files"]
