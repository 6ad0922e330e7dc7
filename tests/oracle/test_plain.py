"""The oracle computes with no kernel of another package, though one is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny_models

KERNEL = """
def chunk_gated_delta_rule(query, key, value, **_):
    raise SystemExit("the kernel was called")
"""
LOADED_BEFORE = "import fla, runpy; runpy.run_module({!r}, run_name='__main__', alter_sys=True)"
BY_ITSELF = """
from transformers.models.qwen3_5 import modeling_qwen3_5
modeling_qwen3_5.torch_chunk_gated_delta_rule(0, 0, 0)
"""


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs Python where fla is installed, and its kernel fails."""
    (tmp_path / "fla").mkdir()
    (tmp_path / "fla" / "__init__.py").write_text(KERNEL)
    path = os.pathsep.join((str(tmp_path), str(Path.cwd())))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.slow
def test_transformers_by_itself_calls_it(
    ask: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    assert "the kernel was called" in ask("-c", BY_ITSELF).stderr


@pytest.mark.slow
@pytest.mark.parametrize("program", ["oracle", "oracle.export"])
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_kernel_that_is_installed_is_not_used(
    ask: Callable[..., subprocess.CompletedProcess[str]],
    write: Callable[..., Path],
    row: Callable[..., dict[str, Any]],
    program: str,
    is_loaded: bool,
) -> None:
    how = ("-c", LOADED_BEFORE.format(program)) if is_loaded else ("-m", program)
    checkpoint = str(tiny_models.ensure("qwen3_5_dense", "nano", 0))
    more = [checkpoint, "--after", "0"] if program == "oracle.export" else []
    ended = ask(*how, checkpoint, *more[:1], str(write(row())), *more[1:])
    assert ended.returncode == 0, ended.stderr
    assert '"loss"' in ended.stdout
