"""Configuration that a test makes its own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from sweep.files import files_in


def use_folders(monkeypatch: pytest.MonkeyPatch, reader: ModuleType, *folders: Path) -> None:
    """`reader` looks for its files in these folders: the tool's own, then those of a user."""
    monkeypatch.setattr(reader, "conf_files", partial(files_in, folders))
