"""Configuration that a test makes its own."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest


def use_folders(monkeypatch: pytest.MonkeyPatch, reader: ModuleType, *folders: Path) -> None:
    """`reader` looks for its files in these folders: the tool's own, then those of a user."""

    def conf_files(*names: str) -> list[Path]:
        found = [folder / name for folder in folders for name in names]
        return [path for path in found if path == found[0] or path.is_file()]

    monkeypatch.setattr(reader, "conf_files", conf_files)
