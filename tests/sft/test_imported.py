"""The digest of the trainer's code is that of what was imported, not of what is on disk later."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch

from sft import imported
from sft.report import about


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package `mine` with two modules, of which one is imported."""
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in ("__init__", "used", "later"):
        (folder / f"{name}.py").write_text(f"NAME = {name!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(imported, "_noted", {})
    importlib.import_module("mine.used")
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


def digest() -> str:
    return imported.digest(("mine",))


def test_a_file_that_changes_after_it_was_imported_and_noted_does_not_count(package: Path) -> None:
    imported.note(("mine",))
    before = digest()
    (package / "used.py").write_text("NAME = 'changed'\n")
    assert digest() == before, "the server's ranks run what it has imported"
    imported._noted.clear()
    assert digest() != before, "a process of its own imports what is there"


def test_a_file_that_nobody_has_imported_counts_as_it_is(package: Path) -> None:
    imported.note(("mine",))
    before = digest()
    (package / "later.py").write_text("NAME = 'changed'\n")
    assert digest() != before
    (package / "later.py").write_text("NAME = 'later'\n")
    assert digest() == before
    (package / "new.py").touch()
    assert digest() != before


def test_what_a_server_imports_is_noted_before_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    from sft import loop
    from sft.warm import preload

    monkeypatch.setattr(imported, "_noted", {})
    preload.trainer()
    assert {loop.__file__, imported.__file__} <= imported._noted.keys()


def test_a_launch_says_which_code_data_and_libraries_it_runs(tmp_path: Path) -> None:
    def written(label: int) -> dict[str, object]:
        row = {"input_ids": torch.tensor([1, 2]), "labels": torch.tensor([label, -100]),
               "position_ids": torch.tensor([0, 1])}  # fmt: skip
        about.write(tmp_path, [row])
        return dict(json.loads((tmp_path / about.NAME).read_text()))

    first, same, other_mask = written(-100), written(-100), written(2)
    assert first == same
    assert first["data"] != other_mask["data"], "a label more is other data"
    assert first["code"] == other_mask["code"] == imported.digest()
    assert first["versions"]["torch"] == torch.__version__  # type: ignore[index]
