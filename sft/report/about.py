"""`about.json`: which code, libraries and data a launch runs, written before its first step."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from sft import imported

NAME = "about.json"
LIBRARIES = ("torch", "transformers", "accelerate", "tokenizers")


def write(folder: Path, data: str, packages: Sequence[str] = imported.PACKAGES) -> None:
    """Write it; `data` is the digest of all rows, `packages` are the trainer's."""
    versions = {
        name: str(sys.modules[name].__version__) for name in LIBRARIES if name in sys.modules
    }
    about = {
        "code": imported.digest(packages),
        "data": data,
        "versions": versions,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAME).write_text(json.dumps(about) + "\n", encoding="utf-8")
