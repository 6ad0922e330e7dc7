"""python -m oracle: figures as JSON, mistakes as one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tiny_models
from oracle.__main__ import main

Write = Callable[..., Path]
Row = Callable[..., dict[str, Any]]


def test_figures_are_printed_or_written(
    write: Write, row: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(tiny_models.ensure("llama", "nano", 0))
    path = str(write(row(), row(step=2)))
    assert main([checkpoint, path]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [step["step"] for step in printed["steps"]] == [1, 2]
    first = printed["steps"][0]
    assert first["tokens"] == 3
    assert first["loss"] == pytest.approx(7.6, abs=3.0)  # near ln(vocabulary)
    assert set(first["grad_norm_groups"]) == {"embedding", "attention", "mlp", "norm"}
    assert printed["data"] == {}
    out = tmp_path / "oracle.json"
    assert main([checkpoint, path, "--out", str(out)]) == 0
    assert json.loads(out.read_text())["steps"] == printed["steps"]


def test_the_data_are_compared_where_settings_name_a_source(
    write: Write, row: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"source": "sft/documents/chats.jsonl"}), encoding="utf-8")
    checkpoint = str(tiny_models.ensure("llama", "nano", 0))
    assert main([checkpoint, str(write(row())), "--settings", str(settings)]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (data["wrong"], data["documents"], data["source_documents"]) == (2, 2, 40)


def test_a_mistake_is_one_line(
    write: Write, row: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def complaint(*argv: str) -> str:
        assert main([str(x) for x in argv]) == 2
        error = capsys.readouterr().err
        assert error.startswith("oracle: ")
        assert error.count("\n") == 1
        return error

    path, checkpoint = str(write(row())), str(tiny_models.ensure("llama", "nano", 0))
    assert "is not a checkpoint that transformers loads" in complaint(str(tmp_path), path)
    assert "cannot be read" in complaint(checkpoint, str(tmp_path / "none.jsonl"))
    assert "cannot be read" in complaint(checkpoint, path, "--settings", str(tmp_path / "none"))
    assert "cannot be written" in complaint(checkpoint, path, "--out", str(tmp_path / "no" / "o"))
    outside = str(write(row(input_ids=[10**6] * 6), name="outside.jsonl"))
    assert "step 1: token 1000000 is outside of the vocabulary" in complaint(checkpoint, outside)
