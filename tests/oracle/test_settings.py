"""What a trainer defines, read from JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oracle import settings
from oracle.errors import OracleError


def read(tmp_path: Path, values: Any) -> settings.Settings:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(values), encoding="utf-8")
    return settings.read(path)


def test_settings_survive_json(tmp_path: Path) -> None:
    chosen = settings.Settings(lr=3e-4, decay="matrices", max_grad_norm=None, source="chats")
    assert read(tmp_path, settings.plain(chosen)) == chosen


def test_a_whole_number_serves_for_a_fraction(tmp_path: Path) -> None:
    assert read(tmp_path, {"lr": 1, "warmup_steps": 2}).lr == 1


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "is not a JSON object"),
        ({"rate": 1}, "no setting 'rate'; there are dtype, lr"),
        ({"decay": "some"}, "decay=some: choose from all, matrices, no_norms_no_biases"),
        ({"lr": "1e-4"}, "lr='1e-4' is of the wrong type or negative"),
        ({"lr": -1.0}, "wrong type or negative"),
        ({"lr": float("nan")}, "wrong type or negative"),
        ({"lr": True}, "wrong type or negative"),
        ({"warmup_steps": 1.5}, "wrong type or negative"),
        ({"source": 3}, "wrong type or negative"),
        ({"groups": [["a", "("]]}, r"groups is a list of \[name, pattern\]"),
        ({"groups": 3}, r"groups is a list of \[name, pattern\]"),
    ],
)
def test_what_settings_cannot_be_is_refused(tmp_path: Path, values: Any, message: str) -> None:
    with pytest.raises(OracleError, match=message):
        read(tmp_path, values)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OracleError, match="cannot be read"):
        settings.read(tmp_path / "none.json")
    (tmp_path / "text").write_text("lr: 1", encoding="utf-8")
    with pytest.raises(OracleError, match="is not JSON"):
        settings.read(tmp_path / "text")
